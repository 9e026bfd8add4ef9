"""With damaged checkpoint files a run reaches the same weights, or says in one line why not."""

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.runs import Run
from arith_erd.training.callbacks import KeepRows
from arith_erd.training.train import train
from tests.behaviour.interruption import assert_same, interrupt
from tests.tiny import FOUR_EPOCHS, TINY

from .test_fuzz import MUTATIONS, VALUES, mutated
from .test_fuzz import fuzz as with_shrinking

OVERRIDES = (*TINY, *FOUR_EPOCHS)
TENSORS = (torch.zeros(()), torch.zeros(1), torch.zeros(1).expand(1000), torch.ones(2, 3, dtype=torch.int32))
fuzz = settings(with_shrinking, phases=[Phase.explicit, Phase.generate])  # an example takes a second


def trained(folder: Path) -> Run:
    (run,) = train(compose("train", [*OVERRIDES, f"runs_dir={folder}"]))
    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Four epochs that nobody interrupted."""
    return trained(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose power went off in its fourth epoch. For copying only."""
    folder = tmp_path_factory.mktemp("half")
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, KeepRows, epoch=4, after=True)
        with pytest.raises(RuntimeError):
            trained(folder)
    return folder


def resumed(half: Path, folder: Path, spoil: Any) -> Run | None:
    """The run in a copy of ``half`` after ``spoil`` has had its way with it; None if that was refused in a line."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(half, folder)
    (path,) = folder.iterdir()
    spoil(Run(path))
    message = ""
    try:
        return trained(folder)
    except UserError as error:
        message = str(error)
    assert message.isprintable()
    assert not Run(path).finished
    return None


@pytest.mark.parametrize("name", ["last.ckpt", "previous.ckpt", "metrics.csv", "config.yaml"])
@fuzz
@given(mutations=MUTATIONS)
def test_damaged_bytes_are_read_or_refused(
    half: Path, whole: Run, tmp_path: Path, name: str, mutations: list[tuple[str, float, Any]]
):
    def damage(run: Run) -> None:
        path = run.path / name
        path.write_bytes(mutated(path.read_bytes(), mutations))

    run = resumed(half, tmp_path / "runs", damage)
    if run is not None and name != "metrics.csv":  # whose numbers nothing vouches for
        assert_same(run, whole)


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from leaves(value, (*path, key))


@fuzz
@given(data=st.data())
def test_other_values_in_a_checkpoint_resume_or_are_refused(half: Path, tmp_path: Path, data: st.DataObject):
    """They may lead anywhere that is a number, but not to a traceback."""

    def craft(run: Run) -> None:
        saved = copy.deepcopy(torch.load(run.checkpoint, weights_only=True))
        *path, last = data.draw(st.sampled_from([*leaves(saved)]))
        node = saved
        for part in path:
            node = node[part]
        if data.draw(st.booleans()):
            del node[last]
        else:
            node[last] = data.draw(VALUES | st.sampled_from(TENSORS))
        torch.save(saved, run.checkpoint)

    resumed(half, tmp_path / "runs", craft)
