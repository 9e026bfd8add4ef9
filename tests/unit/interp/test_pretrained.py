"""Trained networks are found by their short names."""

from pathlib import Path

import pytest

from arith_erd.errors import UserError
from arith_erd.interp.pretrained import load_pretrained, pretrained
from arith_erd.interp.subject import load_run
from arith_erd.runs import Run


def test_finished_runs_are_found_by_name_and_seed(trained_pack: Run) -> None:
    box = trained_pack.path.parent
    assert pretrained(box) == {"add-transformer": {3: trained_pack.path, 5: trained_pack.path}}
    loaded, expected = load_pretrained("add-transformer", 5, box), load_run(trained_pack.path, 5)
    assert (loaded.name, loaded.seed) == (expected.name, 5)


@pytest.mark.parametrize(
    ("name", "seed", "said"), [("sub-mlp", 3, "add-transformer"), ("add-transformer", 4, "3, 5 for add-transformer")]
)
def test_unknown_names_and_seeds_are_refused(name: str, seed: int, said: str, trained_pack: Run) -> None:
    with pytest.raises(UserError, match=said):
        load_pretrained(name, seed, trained_pack.path.parent)


def test_empty_box_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no finished run"):
        load_pretrained("add-transformer", box=tmp_path)
