"""The runs of a list, in its order: each is what ``train.py`` would be asked for."""

import re
from pathlib import Path

import pytest

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.launch.entries import Entry, batched, read_list, read_queue
from arith_erd.runs import METRICS


def listed(folder: Path, text: str) -> list[list[str]]:
    (folder / "mine.yaml").write_text(text, encoding="latin-1")
    return read_list(folder / "mine.yaml")


def test_values_separated_by_commas_are_tried_in_turn_the_first_group_slowest(tmp_path: Path) -> None:
    assert listed(tmp_path, "- task=add,mul model=a,b seed=0-4") == [
        [f"task={task}", f"model={model}", "seed=0-4"] for task in ("add", "mul") for model in "ab"
    ]


def test_commas_in_brackets_and_quotes_do_not_separate_runs(tmp_path: Path) -> None:
    one = ["model.optimizer.betas=[0.9,0.98]", "seed='0,2-3'"]
    assert listed(tmp_path, f"- {' '.join(one)}\n- seed=7") == [one, ["seed=7"]]
    assert compose("train", one).seeds == (0, 2, 3)


def test_spaces_in_quotes_and_brackets_do_not_end_a_word(tmp_path: Path) -> None:
    words = ["runs_dir='my runs'", "betas=[0.9, 0.98]"]
    assert listed(tmp_path, f"- {' '.join(words)} seed=0") == [[words[0], "betas=[0.9,0.98]", "seed=0"]]


@pytest.mark.parametrize("word", ["'runs_dir=my runs'", "runs_dir=x'", "betas=[0.9"])
def test_word_that_hydra_cannot_read_is_explained(tmp_path: Path, word: str) -> None:
    with pytest.raises(UserError, match=rf"task=add {re.escape(word)}: .*: expected .*; expected a list of runs"):
        listed(tmp_path, f"- task=add {word}")


@pytest.mark.parametrize(
    ("pack", "packs"), [(1, [(0,), (1,), (2,)]), (2, [(0, 1), (2,)]), (None, [(0, 1, 2)]), (9, [(0, 1, 2)])]
)
def test_seeds_are_split_into_packs(pack: int | None, packs: list[tuple[int, ...]]) -> None:
    assert batched((0, 1, 2), pack) == packs


def test_queue_of_the_paper_begins_with_what_is_worth_most_seed_by_seed(paper: list[Entry]) -> None:
    assert [entry.title for entry in paper[:6]] == [
        *(f"split=vs_v task=add model=transformer seed={seed}" for seed in range(5)),
        "split=vs_v task=add model=nanogpt seed=0",
    ]
    words = ["split=vs_v", "task=add", "model=transformer", "seed=2"]
    assert paper[2].job.run.name == compose("train", words).run.name
    assert all(len(entry.job.seeds) == 1 for entry in paper)


def test_part_of_the_seeds_trains_the_runs_that_are_listed() -> None:
    entries = read_queue("paper", 1, ["seed=3-4", "model.net.dropout=0.2"])
    for entry in entries[:2]:
        assert compose("train", list(entry.overrides)).run.name == entry.job.run.name
    assert [entry.job.seeds for entry in entries[:2]] == [(3,), (4,)]


def test_unknown_queue_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"^queue=papers: expected paper"):
        read_queue("papers", None)


@pytest.mark.parametrize(
    "text",
    ["", "# only a comment", "[]", "- 3", "- task: add", "- [a", "task=add seed=0", "\xff", "- task add", "- 'a=[0'"],
)
def test_file_that_is_no_list_of_runs_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"mine\.yaml: .*expected a list of runs"):
        listed(tmp_path, text)


def test_queue_trains_nothing_anew() -> None:
    with pytest.raises(UserError, match=r"^overwrite=true: expected false"):
        read_queue("smoke", 1, ["overwrite=true"])


def test_title_says_what_is_trained() -> None:
    titles = [entry.title for entry in read_queue("smoke", 1, ["task=sub", "scale=smoke"])]
    assert all("task=sub" in title.split() for title in titles)


def test_entry_of_several_packs_is_finished_when_all_of_them_are(tmp_path: Path) -> None:
    job = compose("train", ["scale=smoke", "pack.max_replicas=1", "seed=0-1", f"runs_dir={tmp_path}"])
    entry = Entry(("seed=0-1",), (), job)
    assert (entry.finished, entry.epochs_left) == (False, 4)
    for seed, run in enumerate(job.runs()):
        run.create(job.resolved)
        run.write_metrics([dict.fromkeys(METRICS, 0.5) | {"epoch": 2, "seed": seed}])
        run.weights(seed).touch()
        run.finish({"seeds": [{"seed": seed}]})
        assert (entry.finished, entry.epochs_left) == (seed == 1, 2 - 2 * seed)
