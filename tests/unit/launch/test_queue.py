"""A queue is its list in order: what is finished is skipped, what it costs comes from timings."""

import pytest

from arith_erd.errors import UserError
from arith_erd.launch import queue
from arith_erd.launch.queue import Entry, batched, cost, expand, read_queue, timings


def test_values_separated_by_commas_are_tried_in_turn_the_first_group_slowest() -> None:
    assert list(expand("task=add,mul model=a,b seed=0-4")) == [
        (f"task={task}", f"model={model}", "seed=0-4") for task in ("add", "mul") for model in "ab"
    ]


@pytest.mark.parametrize(
    ("pack", "packs"), [(1, [(0,), (1,), (2,)]), (2, [(0, 1), (2,)]), (None, [(0, 1, 2)]), (9, [(0, 1, 2)])]
)
def test_seeds_are_split_into_packs(pack: int | None, packs: list[tuple[int, ...]]) -> None:
    assert batched((0, 1, 2), pack) == packs


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    return read_queue("paper", 1, [f"runs_dir={tmp_path_factory.mktemp('runs')}"])


def test_queue_of_the_paper_begins_with_what_is_worth_most_seed_by_seed(paper: list[Entry]) -> None:
    assert [entry.title for entry in paper[:6]] == [
        *(f"split=vs_v task=add model=transformer seed={seed}" for seed in range(5)),
        "split=vs_v task=add model=nanogpt seed=0",
    ]
    words = ["split=vs_v", "task=add", "model=transformer", "seed=2"]
    assert paper[2].job.run.name == queue.compose("train", words).run.name
    assert all(len(entry.job.seeds) == 1 for entry in paper)


def test_unknown_queue_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"^queue=papers: expected paper"):
        read_queue("papers", None)


def test_printed_cost_is_remaining_epochs_times_measured_epoch_time(trained_pack) -> None:
    measured = timings(trained_pack.path.parent)
    ((kind, seconds),) = measured.items()
    rows = trained_pack.metrics()
    assert seconds == pytest.approx(sum(row["seconds"] for row in rows) / len(rows) / 2)
    job = queue.read_run(trained_pack)
    entry = Entry(("seed=[3,5]",), (), job)
    assert entry.kind == kind
    assert cost(entry, measured) == 0  # all four epochs are done
    assert cost(entry, {}) is None


def test_failed_run_does_not_stop_the_queue_but_the_time_limit_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], paper: list[Entry]
) -> None:
    entries = paper[:3]
    started: list[str] = []

    def train(overrides: tuple[str, ...], seconds: float | None) -> int:
        started.append(overrides[2])
        return 1 if len(started) == 1 else 0

    monkeypatch.setattr(queue, "train", train)
    assert queue.work(entries, None) == 1
    assert len(started) == 3
    assert "failed: split=vs_v task=add model=transformer" in capsys.readouterr().err
    started.clear()
    assert queue.work(entries, queue.MARGIN) == 0
    assert not started


def test_wrong_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^1$"):
        queue.main(["paper", "--hours", "-1"])
    assert capsys.readouterr().err.startswith("error: --hours=-1.0: expected a number above 0")
