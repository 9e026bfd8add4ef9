"""The launcher presets say in one line what is missing or wrong. That they launch: ``tests/clusters``."""

import importlib.util

import pytest

from arith_erd.config.explain import PLUGINS

INSTALLED = {"slurm": "submitit", "ray_gpus": "ray"}


@pytest.mark.parametrize("launcher", PLUGINS)
def test_missing_plugin_names_the_install_command(launcher, cli):
    if importlib.util.find_spec(INSTALLED[launcher]):
        pytest.skip(f"{INSTALLED[launcher]} is installed")
    result = cli("train.py", "-m", f"hydra/launcher={launcher}", "seed=0,1")
    assert result.returncode == 1
    assert result.stderr == f"error: hydra/launcher={launcher}: its plugin is not installed; {PLUGINS[launcher]}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("-m hydra.launcher.partion=gpu", "hydra.launcher.partion: no such key; did you mean hydra.launcher.partition"),
        ("-m hydra.launcher.timeout_min=x", "hydra.launcher.timeout_min=x: ValidationError: Value 'x' of type 'str'"),
        ("hydra.launcher.partition=gpu", "hydra/launcher=slurm: expected -m too"),
        ("-m seed=0,1 fail_fast=true", "fail_fast=true: hydra/launcher=slurm starts jobs at once; expected fail_fast"),
    ],
)
def test_wrong_option_is_one_line(arguments, said, cli):
    pytest.importorskip("submitit", reason=PLUGINS["slurm"])
    result = cli("train.py", *arguments.split(), "hydra/launcher=slurm")
    assert result.returncode == 1
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_submitting_where_there_is_no_slurm_is_one_line(cli, runs_dir):
    pytest.importorskip("submitit", reason=PLUGINS["slurm"])
    result = cli("train.py", "-m", "hydra/launcher=slurm", f"runs_dir={runs_dir}", PATH="")
    assert result.returncode == 1
    assert 'error: hydra/launcher=slurm: RuntimeError: Could not detect "srun"' in result.stderr
    assert "Traceback" not in result.stderr
