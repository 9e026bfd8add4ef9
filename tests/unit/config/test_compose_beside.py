"""What a composition leaves of Hydra and of other compositions, and how numbers are written in it."""

import pytest
from hydra import compose as hydra_compose
from hydra.core.global_hydra import GlobalHydra

from arith_erd.config.compose import compose, hydra_over_conf
from arith_erd.errors import UserError


def test_hydra_of_the_caller_is_left_initialised() -> None:
    with hydra_over_conf():
        compose("train", ["task=mul"])
        assert hydra_compose("train", ["task=add"]).task.name == "add"
    assert not GlobalHydra.instance().is_initialized()


def test_refused_composition_leaves_it_initialised_too() -> None:
    with hydra_over_conf():
        with pytest.raises(UserError, match=r"model\.net\.encoder"):
            compose("train", ["model=nanogpt", "model.net.encoder=false"])
        assert GlobalHydra.instance().is_initialized()


@pytest.mark.parametrize("key", ["+data.mode=3", "+data.full=3"])
def test_words_in_the_comments_of_an_ablation_are_not_its_keys(key: str) -> None:
    with pytest.raises(UserError, match=r"^data\.(mode|full): no such key"):
        compose("train", [key])


@pytest.mark.parametrize(
    ("integer", "real"),
    [
        (["model=nanogpt", "model.gradient_clip=1"], ["model=nanogpt"]),
        (["model.optimizer.weight_decay=0"], []),
        (["model.net.dropout=0"], ["model.net.dropout=0.0"]),
        (["model.net.dropout=-0.0"], ["model.net.dropout=0.0"]),
        (["model.gradient_clip=1"], ["model.gradient_clip=1.0"]),
        (["trainer.stop_at=1"], ["trainer.stop_at=1.0"]),
        (["model.optimizer.betas=[0,0.98]"], ["model.optimizer.betas=[0.0,0.98]"]),
    ],
)
def test_integer_and_equal_real_number_are_one_run(integer: list[str], real: list[str]) -> None:
    assert compose("train", integer).run.name == compose("train", real).run.name


def test_integer_too_large_for_a_real_number_is_refused() -> None:
    with pytest.raises(UserError, match=r"^trainer\.stop_at=1000.*: expected an accuracy from 0 to 1, or null"):
        compose("train", [f"trainer.stop_at=1{'0' * 400}"])


def test_integers_stay_integers() -> None:
    job = compose("train", ["model.net.num_layers=3", "task.bits=5"])
    assert [job.resolved["model"]["net"]["num_layers"], job.resolved["task"]["bits"]] == [3, 5]
    assert type(job.resolved["task"]["bits"]) is int
