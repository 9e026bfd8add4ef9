"""The list of the paper's runs, read once."""

import pytest

from arith_erd.launch.entries import Entry, read_queue


@pytest.fixture(scope="session")
def paper(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    return read_queue("paper", 1, [f"runs_dir={tmp_path_factory.mktemp('runs')}"])
