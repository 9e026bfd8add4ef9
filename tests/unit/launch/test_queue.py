"""A queue is its list in order: what is finished is skipped, what it costs comes from timings."""

import re
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pytest

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.launch import queue
from arith_erd.launch.queue import Entry, batched, bound, cost, read_list, read_queue, timings
from arith_erd.runs.rows import METRICS
from arith_erd.system.signals import Preempted


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


@pytest.mark.parametrize(
    ("seconds", "unknown", "jobs", "says"),
    [
        (5400, 0, 1, "At most 2 hours, by the timings in the runs folder"),
        (
            5400,
            3,
            2,
            "At most 2 hours of runs, 2 at a time, by the timings in the runs folder; not counted: 3 runs of ",
        ),
        (0, 1, 2, "How many hours is not known for 1 run of models that were never timed here"),
        (0, 0, 1, "At most 0 hours, by "),
    ],
)
def test_bound_names_what_it_does_not_count(seconds: float, unknown: int, jobs: int, says: str) -> None:
    assert bound(seconds, unknown, jobs).startswith(says)


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    return read_queue("paper", 1, [f"runs_dir={tmp_path_factory.mktemp('runs')}"])


@pytest.fixture
def short(paper: list[Entry]) -> list[Entry]:
    return paper[:3]


def test_queue_of_the_paper_begins_with_what_is_worth_most_seed_by_seed(paper: list[Entry]) -> None:
    assert [entry.title for entry in paper[:6]] == [
        *(f"split=vs_v task=add model=transformer seed={seed}" for seed in range(5)),
        "split=vs_v task=add model=nanogpt seed=0",
    ]
    words = ["split=vs_v", "task=add", "model=transformer", "seed=2"]
    assert paper[2].job.run.name == queue.compose("train", words).run.name
    assert all(len(entry.job.seeds) == 1 for entry in paper)


def test_part_of_the_seeds_trains_the_runs_that_are_listed() -> None:
    entries = read_queue("paper", 1, ["seed=3-4", "model.net.dropout=0.2"])
    for entry in entries[:2]:
        assert queue.compose("train", list(entry.overrides)).run.name == entry.job.run.name
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


def test_timings_of_small_tables_say_nothing_of_large_ones(paper: list[Entry]) -> None:
    entry, small = paper[0], (64, 8, "transformer", "add", "none")
    assert cost(entry, {small: 0.01}) is None
    assert cost(entry, {small: 0.01, (16384, 128, "transformer", "mul", "none"): 2.0}) == 100


def test_printed_cost_is_remaining_epochs_times_measured_epoch_time(trained_pack) -> None:
    measured = timings(trained_pack.path.parent)
    ((kind, seconds),) = measured.items()
    assert seconds == pytest.approx(median(row["seconds"] for row in trained_pack.metrics()) / 2)
    job = queue.read_run(trained_pack)
    entry = Entry(("seed=[3,5]",), (), job)
    assert entry.kind == kind
    assert cost(entry, measured) == 0  # all four epochs are done
    assert cost(entry, {}) is None


def test_epoch_in_which_the_machine_slept_does_not_count(tmp_path: Path) -> None:
    job = compose("train", ["seed=0", f"runs_dir={tmp_path}"])
    job.run.create(job.resolved)
    seconds = dict(enumerate((30.0, 10.0, 9000.0, 10.0), 1))
    job.run.write_metrics(
        [dict.fromkeys(METRICS, 0.5) | {"epoch": e, "seed": 0, "seconds": s} for e, s in seconds.items()]
    )
    assert list(timings(tmp_path).values()) == [20.0]


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


@dataclass
class Programs:
    """Shell programs in place of trainings: the commands by which each is replaced, and what was started."""

    commands: list[str]
    started: list[str] = field(default_factory=list)
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    most: int = 0

    def start(self, overrides: tuple[str, ...], jobs: int) -> subprocess.Popen[bytes]:
        self.running.append(subprocess.Popen(["sh", "-c", self.commands[len(self.started)]]))
        self.started.append(overrides[-1])
        self.most = max(self.most, sum(process.poll() is None for process in self.running))
        return self.running[-1]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    found = Programs([])
    monkeypatch.setattr(queue, "start", found.start)
    monkeypatch.setattr(queue, "PAUSE", 0.01)
    return found


def test_failed_run_does_not_stop_the_queue(
    programs: Programs, capsys: pytest.CaptureFixture[str], short: list[Entry]
) -> None:
    programs.commands = ["exit 1", "exit 0", "exit 70"]
    assert queue.work(short, None) == 1
    assert len(programs.started) == 3
    failures = capsys.readouterr().err.splitlines()
    ends = {0: "its process ended with status 1", 2: "its process ended with status 70"}  # no file says why
    assert failures == [f"failed: {short[i].title}; {why}" for i, why in ends.items()]


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_so_many_runs_train_at_a_time(programs: Programs, short: list[Entry], jobs: int) -> None:
    programs.commands = ["sleep 0.3"] * 3
    assert queue.work(short, None, jobs) == 0
    assert programs.most == jobs
    assert len(programs.started) == 3


def test_nothing_starts_when_the_time_is_up(
    programs: Programs, capsys: pytest.CaptureFixture[str], short: list[Entry]
) -> None:
    assert queue.work(short, queue.MARGIN) == 0
    assert not programs.started
    assert capsys.readouterr().out == "the time is up; the same command continues from here\n"


def test_time_limit_stops_all_runs_in_progress(programs: Programs, short: list[Entry]) -> None:
    programs.commands = ["exec sleep 60"] * 3
    assert queue.work(short, queue.MARGIN + 0.2, jobs=2) == 0
    assert [process.returncode for process in programs.running] == [-signal.SIGTERM] * 2


@pytest.mark.parametrize("status", ["kill -TERM $$", "exit 143"])
def test_run_that_somebody_stops_stops_the_queue(
    programs: Programs, capsys: pytest.CaptureFixture[str], short: list[Entry], status: str
) -> None:
    programs.commands = [f"sleep 0.1; {status}", "exec sleep 60"]
    assert queue.work(short, None, jobs=2) == 0
    assert len(programs.started) == 2
    assert programs.running[1].returncode == -signal.SIGTERM
    assert "stopped; the same command continues" in capsys.readouterr().out


@pytest.mark.parametrize("end", [Preempted(signal.SIGINT), OSError(12, "Cannot allocate memory")])
def test_whatever_ends_the_queue_stops_its_runs(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, short: list[Entry], end: BaseException
) -> None:
    def look(seconds: float) -> None:
        raise end

    monkeypatch.setattr("time.sleep", look)
    programs.commands = ["exec sleep 60"] * 2
    with pytest.raises(type(end)):
        queue.work(short, None, jobs=2)
    assert [process.returncode for process in programs.running] == [-signal.SIGTERM] * 2


@pytest.mark.parametrize(("jobs", "threads"), [(1, None), (2, "4"), (3, "2"), (20, "1")])
def test_runs_share_the_processors(monkeypatch: pytest.MonkeyPatch, jobs: int, threads: str | None) -> None:
    environments = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, env, **_: environments.append(env))
    monkeypatch.setattr(queue, "usable_processors", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    queue.start(["seed=0"], jobs)
    assert environments[-1].get("OMP_NUM_THREADS") == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    queue.start(["seed=0"], jobs)
    assert environments[-1]["OMP_NUM_THREADS"] == "5"


def test_wrong_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^1$"):
        queue.main(["paper", "--hours", "-1"])
    assert capsys.readouterr().err.startswith("error: --hours=-1.0: expected a number above 0")
