"""Where an answer goes, and what it says about the weights that were asked."""

import pytest

from arith_erd.config.compose import compose
from arith_erd.probes import ask

OWN = ("checkpoint=mine.safetensors", "model=nanogpt", "task=add")


def question(*overrides: str) -> dict[str, str]:
    """The folder of an answer about given weights, and whose weights its description names."""
    job = compose("probe", ["probe=errors", *overrides])
    groups = [] if job.reference is not None else ["task"]
    return {"folder": ask._folder_name(job, groups), **ask._weights(job).get("weights", {})}


@pytest.mark.parametrize("other", ["seed=1", "seed=0-1", "reference=remainder"])
def test_answers_about_other_references_do_not_overwrite_each_other(other):
    first, second = (question("reference=erd", "seed=0", *more)["folder"] for more in ([], [other]))
    assert first != second


def test_weights_of_others_are_named():
    assert question("reference=erd", "seed=0-2").items() >= {"reference": "erd", "seeds": "0-2"}.items()
    assert question(*OWN).items() >= {"checkpoint": "mine.safetensors", "model": "nanogpt"}.items()


def test_authors_weights_need_no_name():
    assert set(question("checkpoint=add.pt", "task=add")) == {"folder"}
