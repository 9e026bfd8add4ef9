"""Which epochs are kept, and which are refused."""

import pytest

from arith_erd.errors import UserError
from arith_erd.runs import Keep, Run


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ("none", []),
        ("all", [*range(1, 33)]),
        ("every:10", [10, 20, 30]),
        ("log", [1, 2, 3, 4, 6, 7, 10, 13, 18, 24, 32]),
    ],
)
def test_rules_keep_these_of_32_epochs(rule: str, kept: list[int]) -> None:
    assert list(Keep.read("checkpoint.keep", rule).until(32)) == kept


def test_log_keeps_eight_epochs_of_every_decade() -> None:
    keep = Keep.read("checkpoint.keep", "log")
    for decade in (10, 100, 1000, 10_000):
        assert len([epoch for epoch in range(decade, 10 * decade) if epoch in keep]) == 8


@pytest.mark.parametrize(
    "value", ["some", "every:0", "every:-1", "every:1.5", "every:", "every", 3, True, None, ["all"]]
)
def test_other_rules_are_refused(value: object) -> None:
    with pytest.raises(UserError, match=r"^checkpoint\.keep=.*: expected none, all, log, or every:K"):
        Keep.read("checkpoint.keep", value)


def test_kept_epochs_are_listed_in_order_and_dropped_after_one(tmp_path) -> None:
    run = Run(tmp_path)
    for epoch in (2, 10, 9):
        run.weights(0, epoch).parent.mkdir(parents=True)
        run.weights(0, epoch).touch()
    run.weights(1, 2).touch()
    for name in ("epoch=x", "epoch=-1", "epoch=05", "epoch=3"):
        (tmp_path / "weights" / name).mkdir()
    assert (run.kept_epochs(0), run.kept_epochs(1)) == ([2, 9, 10], [2])
    run.drop_kept_after(2)
    assert run.kept_epochs(0) == [2]
    assert sorted(path.name for path in (tmp_path / "weights").glob("epoch=[0-9]*")) == ["epoch=05", "epoch=2"]
