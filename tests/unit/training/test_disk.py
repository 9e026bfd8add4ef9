"""``--cfg job`` says how much disk a job needs that keeps its weights over time."""

import sys
from pathlib import Path

import pytest
import yaml

from arith_erd.config.compose import CONF, compose
from arith_erd.training.__main__ import main
from arith_erd.training.disk import disk_line


def test_configuration_is_followed_by_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """nanoGPT for addition has 297,600 parameters of four bytes; two seeds for five epochs are 11.9 MB."""
    words = ["model=nanogpt", "seed=0-1", "trainer.max_epochs=5", "checkpoint.keep=all", "--cfg", "job"]
    monkeypatch.setattr(sys, "argv", ["train.py", *words])
    main()
    printed = capsys.readouterr().out
    assert yaml.safe_load(printed)["checkpoint"]["keep"] == "all"
    assert printed.splitlines()[-1] == (
        "# on disk, about 21.4 MB: final weights 2.4, last.ckpt 7.1, weights of 5 epochs (checkpoint.keep) 11.9; "
        "while it trains, another 7.1"
    )


def test_folder_of_own_configurations_is_looked_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "a 'b'" / "split"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text((CONF / "split" / "random.yaml").read_text())
    words = ["--config-dir", str(folder.parent), "split=mine", "checkpoint.keep=all", "--cfg", "job"]
    monkeypatch.setattr(sys, "argv", ["train.py", *words])
    main()
    assert capsys.readouterr().out.splitlines()[-1].startswith("# on disk, about ")


def test_checkpoint_that_does_not_stay_is_needed_only_while_it_trains() -> None:
    job = compose("train", ["model=nanogpt", "checkpoint.keep_last=false", "trainer.max_epochs=5"])
    assert disk_line(job) == "on disk, about 1.2 MB: final weights 1.2; while it trains, another 7.1"


def test_precision_and_rule_count() -> None:
    job = compose("train", ["model=nanogpt", "trainer.precision=64-true", "checkpoint.keep=every:10"])
    assert "final weights 2.4, last.ckpt 7.1, weights of 5 epochs" in disk_line(job)
