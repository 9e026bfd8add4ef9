"""The default logger accepts every call and writes nothing."""

from pathlib import Path

import pandas as pd

from arith_erd.loggers import Csv


def test_every_call_is_accepted_and_nothing_is_written(tmp_path: Path) -> None:
    logger = Csv()
    logger.start("name", (0, 1), {}, tmp_path)
    logger.log([{"epoch": 1, "seed": 0}])
    logger.finish([])
    logger.probe("name", 0, "dataset", pd.DataFrame(), tmp_path / "figure.png", tmp_path)
    assert list(tmp_path.iterdir()) == []
