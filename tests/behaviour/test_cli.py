"""The programs as people run them, without a terminal.

What is refused before anything is loaded runs within the process of the tests (`main`); that torch is not loaded then,
and whatever trains, is seen in a process of its own (`cli`, `light`).
"""

import csv
import re
from functools import partial

import pytest

from arith_erd.runs import Run

# What is typed, and what the message has to say. Every other refusal is in ``tests/unit/config/test_refusals.py``.
BAD_INPUT = {
    "misspelt": ("trainer.max_epoch=3", r"trainer\.max_epoch: no such key; did you mean trainer\.max_epochs"),
    "dashes": (
        "--model nanogpt",
        "^error: --model: no such option; expected overrides without dashes, such as model=nanogpt",
    ),
    "overrides apart": (
        "task=mul -m seed=0,1",
        "^error: seed=0,1: expected all KEY=VALUE together, before options such as -m",
    ),
    "folder that cannot be written": ("runs_dir=file/runs", "runs_dir=file/runs: cannot be written"),
    "sweep without -m": (
        "experiment=fig3 scale=smoke",
        "experiment=fig3: a sweep of 6 jobs; expected -m: python train.py -m experiment=fig3 scale=smoke",
    ),
    "two experiments at once": ("-m experiment=fig1,fig3", "experiment=fig1: .*expected one experiment a command"),
}
BAD_QUESTIONS = {
    "probe=dataste": "probe=dataste: expected .*dataset",
    "probe=dataset +out.dir=x": "out",
    "probe=dataset trainer.max_epochs=3": r"trainer.*: no such key",
    "probe=dataset run=runs/none": "run=runs/none: .*takes no run=, checkpoint= or reference=",
    "probe=dataset out=file/x": "out=file/x: cannot be written",
    "probe=distance_correlation": "run=DIR, checkpoint=FILE",
    "probe=errors run=runs/none task=mul": "task=mul: cannot be combined with run=",
    "probe=errors checkpoint=none.pt": "checkpoint=none.pt: expected its task",
    "probe=errors reference=magic": "reference=magic: expected .*erd, prefix_carry",
    "probe=errors reference=erd task.bits=5": "reference=erd: adds at task.bits=7",
    "probe=errors reference=erd run=runs/none": "expected one of run=DIR",
}


@pytest.fixture
def folder(tmp_path):
    """Somewhere to stand: whatever a program leaves behind, it leaves here."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").write_text("not a folder")
    return tmp_path / "here"


@pytest.fixture
def without(tmp_path):
    """``without("torch")`` is a `PYTHONPATH` on which importing torch ends the program."""

    def path(*libraries: str) -> str:
        folder = tmp_path / "-".join(["without", *libraries])
        folder.mkdir()
        for library in libraries:
            (folder / f"{library}.py").write_text(f"raise SystemExit('{library} was imported')\n")
        return str(folder)

    return path


@pytest.fixture
def light(cli, without):
    """A program that ends if it imports torch or Lightning: help and refusals need neither."""
    return partial(cli, PYTHONPATH=without("torch", "lightning", "pytorch_lightning", "torchmetrics", "wandb"))


def assert_refused(result, message: str, folder) -> None:
    output = result.stdout + result.stderr
    assert result.returncode != 0
    assert "Traceback" not in output
    assert re.search(message, output, re.DOTALL), output
    assert len([line for line in output.splitlines() if "[HYDRA]" not in line]) <= 8
    assert [path.name for path in folder.iterdir()] == ["file"]


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_gives_a_short_message_and_writes_nothing(case, main, folder):
    typed, message = BAD_INPUT[case]
    assert_refused(main("train.py", *typed.split(), cwd=folder), message, folder)


@pytest.mark.parametrize("typed", BAD_QUESTIONS)
def test_bad_question_gives_a_short_message_and_writes_nothing(typed, main, folder):
    assert_refused(main("probe.py", *typed.split(), cwd=folder), BAD_QUESTIONS[typed], folder)


@pytest.mark.parametrize(
    ("program", "typed", "message"),
    [
        pytest.param("train.py", "trainer.max_epochs=-1", r"trainer\.max_epochs=-1: ", marks=pytest.mark.slow),
        ("train.py", "-m seed=4-0", "seed=4-0: expected"),
        ("probe.py", "probe=dataset split.fraction=2", r"split\.fraction=2\.0: expected"),
    ],
)
def test_refusing_needs_no_torch(program, typed, message, light, folder):
    assert_refused(light(program, *typed.split(), cwd=folder), message, folder)


@pytest.mark.parametrize(
    ("program", "groups"),
    [
        ("train.py", ("task", "split", "model", "ablation", "logger", "experiment", "scale", "hydra/launcher")),
        ("probe.py", ("task", "split", "probe", "logger", "figure")),
    ],
)
def test_help_fits_a_screen_and_lists_every_group_and_option(program, groups, light, root):
    result = light(program, "--help")
    assert result.returncode == 0
    lines = result.stdout.rstrip().splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    for group in groups:
        assert re.search(rf"^\s+{group}\b", result.stdout, re.MULTILINE), group
        for path in (root / "conf" / group).glob("*.yaml"):
            assert re.search(rf"\b{path.stem}\b", result.stdout), path.stem
    assert re.search(rf"^\s+python {re.escape(program)}", result.stdout, re.MULTILINE), "no example"


def test_help_lists_options_of_the_users_own_folder(light, folder, tmp_path):
    own = tmp_path / "own" / "task"
    own.mkdir(parents=True)
    (own / "gcd.yaml").write_text("name: gcd\n")
    assert re.search(
        r"^  task +add  add3  add_scratchpad  gcd  mod_add  mul  random_output\n +sub$",
        light("train.py", f"--config-dir={own.parent}", "--help").stdout,
        re.M,
    )


def test_configuration_can_be_printed(light):
    result = light("train.py", "task=mul", "--cfg", "job", "--resolve")
    assert result.returncode == 0
    assert "max_epochs: 250" in result.stdout


def test_sweep_of_two_packs_from_end_to_end(cli, folder, tiny, without, light):
    """W&B, which was not chosen, is never imported."""
    result = cli("train.py", "-m", "task=add,mul", "seed=0-1", *tiny, cwd=folder, PYTHONPATH=without("wandb"))
    assert result.returncode == 0, result.stderr
    assert not result.stderr
    runs = sorted((Run(path) for path in (folder / "runs").iterdir()), key=lambda run: run.name)
    assert len(runs) == 2
    for run, task in zip(runs, ("add", "mul"), strict=True):
        assert run.config()["task"]["name"] == task
        assert [(row["epoch"], row["seed"]) for row in run.metrics()] == [(1, 0), (1, 1), (2, 0), (2, 1)]
        assert [entry["seed"] for entry in run.summary()["seeds"]] == [0, 1]
        assert run.weights(0).is_file()
        assert run.weights(1).is_file()
        assert str(run.path.relative_to(folder)) in result.stdout
    assert result.stdout.count("loading PyTorch\n") == 1
    # Nobody is at the terminal: no progress bar, no control characters, a few lines a run.
    assert "\x1b" not in result.stdout + result.stderr
    assert len(result.stdout.splitlines()) <= 14  # of them a table of three
    assert re.findall(r"^(\d) +finished +[\d.]+% +(\S+) *$", result.stdout, re.MULTILINE) == [
        ("0", "task=add"),
        ("1", "task=mul"),
    ]
    assert {path.name for path in folder.iterdir()} == {"file", "runs"}

    stamps = {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*")}
    again = light("train.py", "-m", "task=add,mul", "seed=0-1", *tiny, cwd=folder)
    assert again.returncode == 0
    assert again.stdout.count("finished already, skipped") == 2
    assert {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*")} == stamps


def test_dataset_probe_from_end_to_end(cli, folder, tiny):
    result = cli("probe.py", "probe=dataset", "split=vs_v", "task=mul", "task.bits=3", "out=here", cwd=folder)
    assert result.returncode == 0, result.stderr
    with (folder / "here" / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["a", "b", "answer", "prompt", "completion", "subset"]
    assert len(rows) == 64
    for row in rows:
        a, b = int(row["a"]), int(row["b"])
        assert int(row["answer"]) == a * b
        assert row["prompt"] == f"{a:03b}"[::-1] + "x" + f"{b:03b}"[::-1]
        assert row["completion"] == f"{a * b:06b}"[::-1]
        assert row["subset"] == ("validation" if 2 <= a < 6 and 2 <= b < 6 else "train")
    assert (folder / "here" / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in folder.iterdir()} == {"file", "here"}


def test_dataset_probe_without_out(main, folder):
    assert main("probe.py", "task.bits=2", cwd=folder).returncode == 0
    (rows,) = (folder / "runs").rglob("rows.csv")
    assert rows.parent.parent == folder / "runs" / "probes"
    assert rows.parent.name.startswith("dataset-add")


def test_experiment_sets_its_own_sweep(main, folder):
    result = main("train.py", "-m", "experiment=fig1", "seed=4-0", cwd=folder)
    assert re.findall(r"job (\d) \(.*task=(\w+).*\): seed=4-0", result.stderr) == [("0", "add"), ("1", "mul")]
    result = main("train.py", "-m", "experiment=fig1", "task=mul", "seed=4-0", cwd=folder)  # what is typed wins
    assert re.findall(r"job (\d) \(.*task=(\w+).*\): seed=4-0", result.stderr) == [("0", "mul")]
