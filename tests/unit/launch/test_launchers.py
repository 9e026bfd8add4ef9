"""The presets of launchers and of the search: one line says what is missing or wrong. Launching: ``tests/clusters``."""

import importlib.util
import re

import pytest
import yaml

from arith_erd.bundled import CONF
from arith_erd.config.compose import compose
from arith_erd.runs.table import load_table
from tests.tiny import TINY

INSTALLED = {"slurm": "submitit", "ray_gpus": "ray"}


@pytest.mark.parametrize("launcher", INSTALLED)
def test_missing_plugin_names_the_file_with_the_install_command(launcher, main):
    if importlib.util.find_spec(INSTALLED[launcher]):
        pytest.skip(f"{INSTALLED[launcher]} is installed")
    result = main("train.py", "-m", f"hydra/launcher={launcher}", "seed=0,1")
    assert result.returncode == 1
    file = f"hydra/launcher/{launcher}.yaml"
    assert result.stderr == f"error: hydra/launcher={launcher}: its plugin is not installed; conf/{file} says how\n"
    assert "pip install" in (CONF / file).read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("-m hydra.launcher.partion=gpu", "hydra.launcher.partion: no such key; did you mean hydra.launcher.partition"),
        ("-m hydra.launcher.timeout_min=x", "hydra.launcher.timeout_min=x: ValidationError: Value 'x' of type 'str'"),
        ("hydra.launcher.partition=gpu", "hydra/launcher=slurm: expected -m too"),
        ("-m seed=0,1 fail_fast=true", "fail_fast=true: hydra/launcher=slurm starts jobs at once; expected fail_fast"),
        ("-m seed=0", "error: hydra/launcher=slurm: there is no srun here; expected a machine of a Slurm cluster\n"),
    ],
)
def test_wrong_option_or_no_slurm_is_one_line(arguments, said, main, tmp_path, monkeypatch):
    pytest.importorskip("submitit", reason="the extra slurm")
    monkeypatch.setenv("PATH", "")
    result = main("train.py", *arguments.split(), "hydra/launcher=slurm", f"runs_dir={tmp_path}/runs", cwd=tmp_path)
    assert result.returncode == 1
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_search_needs_its_sweeper(main):
    result = main("train.py", "-m", "experiment=optuna_example")
    assert result.stderr == "error: interval: expected hydra/sweeper=search, which draws values from it\n"
    if not importlib.util.find_spec("optuna"):
        result = main("train.py", "-m", "experiment=optuna_example", "hydra/sweeper=search")
        assert re.match("error: hydra/sweeper=search: its plugin is not installed; conf/hydra/", result.stderr)


def test_arguments_of_an_agent_of_wandb_are_accepted(root):
    """Those of the page: ``${args_no_hyphens}`` is ``KEY=VALUE`` for each parameter."""
    page = (root / "docs" / "how-to" / "search.md").read_text()
    sweep = yaml.safe_load(page.split("```yaml")[1].split("```")[0])
    fixed = [word for word in sweep["command"] if "=" in word]
    job = compose(
        "train", [*fixed, *(f"{key}={value}" for key, value in zip(sweep["parameters"], (0.0012, 32), strict=True))]
    )
    assert job.resolved["model"]["optimizer"]["lr"] == 0.0012
    assert job.resolved["data"]["batch_size"] == 32


def test_search_finds_the_best_of_its_trials(cli, runs_dir, tmp_path):
    pytest.importorskip("optuna", reason="the extra optuna")
    words = ("experiment=optuna_example", "hydra/sweeper=search", "hydra.sweeper.n_trials=4", "model=nanogpt")
    small = [word for word in TINY if not word.startswith("data.batch_size")]
    result = cli("train.py", "-m", *words, *small, f"runs_dir={runs_dir}", f"hydra.sweep.dir={tmp_path}")
    assert result.returncode == 0, result.stderr
    found = yaml.safe_load((tmp_path / "optimization_results.yaml").read_text())
    means = load_table(runs_dir).groupby("path")["val_seq_acc"].mean()
    assert len(means) == 4
    assert found["best_value"] == means.max()
    assert set(found["best_params"]) == {"model.optimizer.lr", "data.batch_size"}
