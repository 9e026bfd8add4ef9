"""The presets of launchers, and the search page. What is missing is one line. Launching: ``tests/clusters``."""

import importlib.util

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
    states = [
        trial.state.name for trial in optuna.load_study(study_name="nanogpt", storage="sqlite:///search.db").trials
    ]
    assert states == ["FAIL", "FAIL", "COMPLETE", "COMPLETE"]
    means = load_table(tmp_path / "runs").query("state == 'finished'").groupby("path")["val_seq_acc"].mean()
    assert found["study"].best_value == means.max()
