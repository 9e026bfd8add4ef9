"""Presets of launchers, and the search page: what is missing is named in one line. ``tests/clusters`` launches jobs."""

import importlib.util

import pytest
import yaml

from arith_erd.config.compose import compose
from arith_erd.runs.table import load_table
from tests.tiny import TINY

WITHOUT_RAY = pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("slurm -m hydra.launcher.partion=gpu", "hydra.launcher.partion: no such key; did you mean hydra.launcher.pa"),
        ("slurm -m hydra.launcher.nodes=2", "hydra.launcher.nodes=2: expected 1 or null"),
        ("slurm -m hydra.launcher.mem_gb=16G", "hydra.launcher.mem_gb=16G: expected a number, such as 1.5"),
        ("slurm -m hydra.launcher.nodes=null hydra.launcher.mem_gb=1.5", "slurm: there is no srun here; expected a"),
        ("slurm hydra.launcher.partition=gpu", "hydra/launcher=slurm: expected -m too"),
        ("slurm -m seed=0,1 fail_fast=true", "fail_fast=true: hydra/launcher=slurm starts jobs at once; expected fail"),
        ("gpus -m wait=false", "wait=false: expected hydra/launcher=slurm"),
        ("gpus -m", "hydra/launcher=gpus: no GPU is visible; expected CUDA_VISIBLE_DEVICES="),
        ("gpus -m hydra.launcher.jobs_per_gpu=0", "hydra.launcher.jobs_per_gpu=0: expected an integer from 1 to"),
        ("slurm -m hydra.launcher.nodes=true", "hydra.launcher.nodes=true: expected 1 or null"),
        ("slurm -m hydra.launcher.mem_gb=inf", "hydra.launcher.mem_gb=inf: expected a number, such as 1.5"),
        ("slurm -m hydra.launcher.array_parallelism=-1", "array_parallelism=-1: expected an integer of at least 1"),
        ("slurm -m hydra.launcher.max_num_timeout=abc", "max_num_timeout=abc: expected an integer of at least 0"),
        ("slurm -m hydra.launcher.setup=module", "hydra.launcher.setup=module: expected a list of shell commands"),
        ("slurm -m hydra.launcher.additional_parameters=foo", "additional_parameters=foo: expected options of sbatch"),
        ("slurm -m +hydra.launcher.additional_parameters.reservation=x", "slurm: there is no srun here; expected a"),
        ("slurm -m seed=0,1,2 job_index=1,2", "job_index=1,2: expected an integer from 0 to 2"),
        pytest.param("ray_gpus -m", "ray_gpus: ModuleNotFoundError: No module named 'ray'; pip", marks=WITHOUT_RAY),
    ],
)
def test_wrong_option_or_missing_cluster_gives_a_one_line_error(arguments, said, main, tmp_path, monkeypatch):
    launcher, *words = arguments.split()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    result = main("train.py", *words, f"hydra/launcher={launcher}", f"runs_dir={tmp_path}/runs", cwd=tmp_path)
    assert result.returncode == 1
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_arguments_of_a_wandb_agent_are_accepted(root):
    """Those of the page: ``${args_no_hyphens}`` is ``KEY=VALUE`` for each parameter."""
    page = (root / "docs" / "how-to" / "search.md").read_text()
    sweep = yaml.safe_load(page.split("```yaml")[1].split("```")[0])
    fixed = [word for word in sweep["command"] if "=" in word]
    drawn = [f"{key}={value}" for key, value in zip(sweep["parameters"], (0.0012, 32), strict=True)]
    job = compose("train", [*fixed, *drawn])
    assert job.resolved["model"]["optimizer"]["lr"] == 0.0012
    assert job.resolved["data"]["batch_size"] == 32


@pytest.mark.slow
def test_search_of_the_page_survives_a_diverging_trial_and_continues_from_its_storage(root, tmp_path, monkeypatch):
    optuna = pytest.importorskip("optuna", reason="pip install optuna")
    monkeypatch.chdir(tmp_path)
    script = (root / "docs" / "how-to" / "search.md").read_text().split("```python")[1].split("```")[0]
    small = [word for word in TINY if not word.startswith("data.batch_size")]
    script = script.replace('"model=nanogpt", ', f'"model=nanogpt", *{small}, ').replace("n_trials=20", "n_trials=2")
    exec(script.replace("lr={lr}", "lr={lr * 1e33}").rpartition("print(")[0], {})  # both trials diverge
    found: dict = {}
    exec(script, found)
    study = optuna.load_study(study_name="nanogpt", storage="sqlite:///search.db")
    assert [trial.state.name for trial in study.trials] == ["FAIL", "FAIL", "COMPLETE", "COMPLETE"]
    means = load_table(tmp_path / "runs").query("state == 'finished'").groupby("path")["val_seq_acc"].mean()
    assert found["study"].best_value == means.max()
