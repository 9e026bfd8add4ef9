"""The programs as people run them, without a terminal, and from a built wheel without the repository.

Refusals run in the process of the tests (`main`). Programs that train, or must not load torch, run in a process of
their own (`cli`, `light`).
"""

import csv
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from arith_erd.runs.directory import Run
from tests.tiny import TINY

pytestmark = pytest.mark.slow_after(8)

# What is typed, and what the message has to say. Every other refusal is in ``tests/unit/config/test_refusals.py``.
BAD_COMMANDS = {
    "train.py --model nanogpt": "^error: --model: no such option; expected overrides without dashes, such as model",
    "train.py task=mul -m seed=4-0": r"^error: job 0 \(task=mul seed=4-0\): seed=4-0: expected",
    "train.py --cfg jobs": "^error: --cfg/-c: invalid choice: 'jobs' .choose from",
    "train.py --resolve": "^error: --resolve: expected --cfg too",
    "train.py -p task": "^error: --package: expected --cfg too",
    "train.py --cfg job --package optimizer": "^error: optimizer: no such key; did you mean model.optimizer?",
    "train.py --shell-completion": "^error: --shell-completion: expected install=bash too",
    "train.py -m hydra.verbose=true": "^error: hydra.verbose=true: expected of Hydra's own only hydra/launcher=NAME, ",
    "train.py -m hydra/launcher=gpus,slurm": "^error: hydra/launcher=gpus,slurm: expected of .*, one value each",
    "train.py -m task.bits=interval(2,4)": r"^error: task.bits=interval\(2,4\): expected values, since nothing",
    "train.py hydra.searchpath=[none]": "^error: hydra.searchpath=none: expected a folder",
    "train.py -m job_index=1": "^error: job_index=1: expected 0, the only job",
    "train.py ablation=null": "^error: ablation=null: expected one of the options of ablation",
    "train.py -m hydra.sweeper.params.seed=0,1": "^error: hydra.sweeper.params.seed=0,1: expected .*",
    "train.py hydra.sweeper.params.seed=1": "^error: hydra.sweeper.params.seed=1: expected the key itself, seed=1",
    "train.py runs_dir=file/runs": "runs_dir=file/runs: cannot be written",
    "train.py experiment=fig3 scale=smoke": (
        "experiment=fig3: a sweep of 6 jobs; expected -m: python train.py -m experiment=fig3 scale=smoke"
    ),
    "train.py -m experiment=fig1,fig3": "experiment=fig1: .*expected one experiment per command",
    "probe.py probe=dataste": "probe=dataste: expected .*; did you mean dataset?",
    "probe.py probe=dataset +out.dir=x": "^error: out={'dir': 'x'}: expected a folder, or null",
    "probe.py probe=dataset trainer.max_epochs=3": r"trainer.*: no such key",
    "probe.py probe=dataset run=runs/none": "run=runs/none: .*takes no run=, checkpoint= or handcoded=",
    "probe.py probe=dataset out=file/x": "out=file/x: cannot be written",
    "probe.py probe=distance_correlation": "run=DIR, checkpoint=FILE",
    "probe.py probe=errors run=runs/none task=mul": "task=mul: not accepted with run=",
    "probe.py probe=errors checkpoint=none.pt": "checkpoint=none.pt: also needs task=",
    "probe.py probe=errors checkpoint=none.pt task=add": "checkpoint=none.pt: No such file or directory; expected a st",
    "probe.py probe=errors handcoded=erd run=runs/none": "expected one of run=DIR",
}


@pytest.fixture
def folder(tmp_path):
    """The current folder of the programs, in which they write all their files."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").write_text("not a folder")
    return tmp_path / "here"


def without(folder, *libraries: str) -> str:
    """A `PYTHONPATH` with which importing any of these libraries ends the program."""
    folder.mkdir()
    for library in libraries:
        (folder / f"{library}.py").write_text(f"raise SystemExit('{library} was imported')\n")
    return str(folder)


@pytest.fixture
def light(cli, tmp_path):
    """A program that ends if it imports torch or Lightning: help and refusals need neither."""
    libraries = ("torch", "lightning", "pytorch_lightning", "torchmetrics", "wandb")
    return partial(cli, PYTHONPATH=without(tmp_path / "light", *libraries))


def assert_refused(result, message: str, folder) -> None:
    output = result.stdout + result.stderr
    assert result.returncode != 0
    assert "Traceback" not in output
    assert re.search(message, output, re.DOTALL), output
    assert len([line for line in output.splitlines() if "[HYDRA]" not in line]) <= 8
    assert [path.name for path in folder.iterdir()] == ["file"]


@pytest.mark.parametrize("typed", BAD_COMMANDS)
def test_bad_command_gives_a_short_message_and_writes_nothing(typed, main, folder):
    assert_refused(main(*typed.split(), cwd=folder), BAD_COMMANDS[typed], folder)


@pytest.mark.slow
def test_a_deleted_current_folder_is_reported_in_one_line(cli, root, folder, tmp_path):
    (tmp_path / "gone").mkdir()
    program = f"os.rmdir('../gone'); runpy.run_path({str(root / 'train.py')!r}, run_name='__main__')"
    result = cli("-c", f"import os, runpy; {program}", "task.bits=3", cwd=tmp_path / "gone")
    assert_refused(result, "^error: the current folder: No such file", folder)


@pytest.mark.slow
@pytest.mark.parametrize(("program", "typed"), [("train.py", "-m"), ("probe.py", "probe=dataset")])
def test_refusing_needs_no_torch(program, typed, light, folder):
    assert_refused(light(program, typed, "split.fraction=2", cwd=folder), r"split\.fraction=2\.0: expected", folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "groups"),
    [
        ("train.py", ("task", "split", "model", "ablation", "logger", "experiment", "scale", "hydra/launcher")),
        ("probe.py", ("task", "split", "probe", "logger", "figure")),
    ],
)
def test_help_fits_a_screen_and_lists_every_group_and_option(program, groups, light, root, tmp_path):
    """It lists the options of the user's own folder, too."""
    own = tmp_path / "own" / "split"
    own.mkdir(parents=True)
    (own / "near.yaml").write_text("name: near\n")
    result = light(program, f"--config-dir={own.parent}", "--help")
    assert result.returncode == 0
    lines = result.stdout.rstrip().splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    for group in groups:
        assert re.search(rf"^\s+{group}\b", result.stdout, re.MULTILINE), group
        for path in (root / "conf" / group).glob("*.yaml"):
            assert re.search(rf"\b{path.stem}\b", result.stdout), path.stem
    assert re.search(r"^  split .* near ", result.stdout, re.MULTILINE)
    assert re.search(rf"^\s+python {re.escape(program)}", result.stdout, re.MULTILINE), "no example"


def test_hydra_help_has_the_options_that_this_program_takes(main):
    printed = main("train.py", "--hydra-help").stdout
    options = re.findall(r"^  (--[\w-]+)", printed, re.MULTILINE)
    assert {"--multirun", "--config-dir", "--cfg"} <= set(options)
    assert max(map(len, printed.splitlines())) <= 80
    assert "--config-name" not in printed  # of Hydra's own, refused here
    assert main("train.py", "--config-name=x").stderr.startswith("error: --config-name=x: no such option; ")


def test_configuration_can_be_printed(main):
    result = main("train.py", "task=mul", "--cfg", "job", "--resolve")
    assert result.returncode == 0
    assert "max_epochs: 250" in result.stdout


@pytest.mark.slow
def test_sweep_trains_each_pack_and_again_changes_nothing(cli, folder, tmp_path, light):
    """W&B, which was not chosen, is never imported."""
    without_wandb = without(tmp_path / "without", "wandb")
    result = cli("train.py", "-m", "task=add,mul", "seed=0-1", *TINY, cwd=folder, PYTHONPATH=without_wandb)
    assert result.returncode == 0, result.stderr
    assert not result.stderr
    runs = sorted((Run(path) for path in (folder / "runs").iterdir()), key=lambda run: run.name)
    assert len(runs) == 2
    for run, task in zip(runs, ("add", "mul"), strict=True):
        assert run.config()["task"]["name"] == task
        assert [(row["epoch"], row["seed"]) for row in run.metrics()] == [(1, 0), (1, 1), (2, 0), (2, 1)]
        assert [entry["seed"] for entry in run.summary()["seeds"]] == [0, 1]
        assert run.weights_file(0).is_file()
        assert run.weights_file(1).is_file()
        assert str(run.path.relative_to(folder)) in result.stdout
    assert result.stdout.count("loading PyTorch\n") == 1
    # Nobody is at the terminal: no progress bar, no control characters, a few lines a run.
    assert "\x1b" not in result.stdout + result.stderr
    assert len(result.stdout.splitlines()) <= 14  # of them a table of three
    table = re.findall(r"^(\d) +finished +[\d.]+% +(\S+) *$", result.stdout, re.MULTILINE)
    assert table == [("0", "task=add"), ("1", "task=mul")]
    assert {path.name for path in folder.iterdir()} == {"file", "runs"}

    stamps = {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*")}
    again = light("train.py", "-m", "task=add,mul", "seed=0-1", *TINY, cwd=folder)
    assert again.returncode == 0
    assert again.stdout.count("finished already, skipped") == 2
    assert {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*")} == stamps


@pytest.mark.slow
def test_dataset_probe_writes_each_example_with_its_subset(cli, folder):
    arguments = ("probe=dataset", "split=vs_v", "task=mul", "task.bits=3", "out=here")
    result = cli("probe.py", *arguments, cwd=folder, MPLBACKEND="nonsense")
    assert result.returncode == 0, result.stderr
    with (folder / "here" / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["a", "b", "answer", "prompt", "completion", "subset"]
    assert len(rows) == 64
    assert list(rows[2 * 8 + 5].values()) == ["2", "5", "10", "010x101", "010100", "validation"]
    assert sum(row["subset"] == "validation" for row in rows) == 16
    assert (folder / "here" / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in folder.iterdir()} == {"file", "here"}


def test_probe_of_a_task_writes_below_runs_unless_told_where(main, folder):
    assert main("probe.py", "task.bits=2", cwd=folder).returncode == 0
    (rows,) = (folder / "runs").rglob("rows.csv")
    assert rows.parent.parent == folder / "runs" / "probes"
    assert rows.parent.name.startswith("dataset-add")


def test_experiment_sets_its_own_sweep(main, folder):
    result = main("train.py", "-m", "experiment=fig1", "seed=4-0", cwd=folder)
    assert re.findall(r"job (\d) \(.*task=(\w+).*\): seed=4-0", result.stderr) == [("0", "add"), ("1", "mul")]
    result = main("train.py", "-m", "experiment=fig1", "task=mul", "seed=4-0", cwd=folder)  # what is typed wins
    assert re.findall(r"job (\d) \(.*task=(\w+).*\): seed=4-0", result.stderr) == [("0", "mul")]


@pytest.mark.slow
def test_wheel_brings_configurations_networks_and_claims_and_programs_find_them(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77", reason="the build backend")
    source, installed = tmp_path / "source", tmp_path / "installed"  # setuptools leaves build/ behind
    source.mkdir()
    for name in ("src", "conf", "paper", "pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (source / name).symlink_to(root / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", f"-w{tmp_path}", source]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    shutil.unpack_archive(wheel, installed, "zip")
    wanted, found = (
        {path.relative_to(conf) for path in conf.rglob("*.yaml")}
        for conf in (root / "conf", installed / "arith_erd/conf")
    )
    assert found == wanted
    page = (root / "docs" / "how-to" / "claims.md").read_text()
    for path, text in re.findall(r"^`(my_paper/\S+)`:\n\n```\w+\n(.*?)^```", page, re.M | re.S):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    claims, own = tmp_path / "my_paper" / "claims.yaml", tmp_path / "my_paper" / "own.yaml"
    own.write_text(claims.read_text().replace("summary, column: val_seq_acc", "gap.py:Gap"))
    runs = map(str, sorted((root / "paper" / "results" / "runs").glob("add-random-nanogpt-none-seed*")))
    report = ["-m", "arith_erd.report", *runs]
    loading = "import arith_erd as ae; print(ae.load_pretrained('mul-nanogpt').task)"
    for command, printed in (
        (["-m", "arith_erd.training", "task=mul", "--cfg", "job"], "_target_: arith_erd.tasks.Mul"),
        (["-m", "arith_erd.probes", "task=mul", "--cfg", "job"], "_target_: arith_erd.tasks.Mul"),
        (["-m", "arith_erd.probes", "probe=ceilings", "task.bits=3"], "no_attention"),  # of paper/
        (["-c", loading], "Mul"),
        (report, "Of 63 results: "),
        ([*report, "--claims", claims], "Of 1 result: 1 reproduced."),
        ([*report, "--claims", own, "--trust"], "Of 1 result: 1 differs."),
    ):
        environment = os.environ | {"PYTHONPATH": str(installed)}
        ran = subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert printed in ran.stdout
    assert "accuracy on pairs that it never saw" in (tmp_path / "report" / "index.html").read_text()
    command = [sys.executable, *report, "--claims", own]
    refused = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "claim learned: measure.from=gap.py:Gap: gap.py is code that would run; --trust allows it" in refused.stderr
