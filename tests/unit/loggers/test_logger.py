"""The base class and the default logger accept every call and write nothing."""

from pathlib import Path

import pandas as pd
import pytest

from arith_erd.loggers import Csv, Logger


@pytest.mark.parametrize("kind", [Logger, Csv])
def test_every_call_is_accepted_and_nothing_is_written(kind: type[Logger], tmp_path: Path) -> None:
    logger = kind()
    logger.start("name", (0, 1), {}, tmp_path)
    logger.log([{"epoch": 1, "seed": 0}])
    logger.finish([])
    logger.probe("name", 0, "dataset", pd.DataFrame(), tmp_path / "figure.png", tmp_path)
    assert list(tmp_path.iterdir()) == []
