"""How often Hydra composes, what a composition leaves behind, who may configure Hydra, and how numbers are written."""

import sys
from importlib.util import find_spec

import pytest
from hydra import compose as hydra_compose
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra

from arith_erd.config import build
from arith_erd.config import compose as compose_module
from arith_erd.config.compose import compose, hydra_over_conf
from arith_erd.errors import UserError


@pytest.fixture
def compositions(monkeypatch):
    """A list with an entry for each time that Hydra composes; none was made before."""
    made, real = [], ConfigLoaderImpl._load_configuration_impl

    def counted(loader, config_name, overrides, *others, **named):
        made.append(overrides)
        return real(loader, config_name, overrides, *others, **named)

    monkeypatch.setattr(ConfigLoaderImpl, "_load_configuration_impl", counted)
    compose_module._composed.cache_clear()
    return made


@pytest.mark.parametrize("overrides", [[], ["task=mul", "model=nanogpt", "seed=0-4"]])
def test_options_and_seeds_compose_hydra_once(compositions, overrides):
    compose("train", overrides)
    assert len(compositions) == 1


def test_default_run_of_the_program_composes_hydra_once(compositions, main, tmp_path, monkeypatch):
    monkeypatch.setattr("arith_erd.training.__main__.train", lambda job: [])
    monkeypatch.setattr("arith_erd.training.__main__.objective", lambda runs: 0.0)
    assert main("train.py", f"runs_dir={tmp_path}").returncode == 0
    assert len(compositions) == 1


def test_hydra_of_the_caller_stays_initialised():
    with hydra_over_conf():
        compose("train", ["task=mul"])
        with pytest.raises(UserError, match=r"model\.net\.encoder"):
            compose("train", ["model=nanogpt", "model.net.encoder=false"])
        assert hydra_compose("train", ["task=add"]).task.name == "add"
    assert not GlobalHydra.instance().is_initialized()


# Hydra's own node, and trust

FILES = {  # an experiment -> the key that is named
    "hydra: {callbacks: {x: {_target_: pathlib.Path.touch, self: canary}}}": "hydra.callbacks",
    "hydra: {job_logging: {handlers: {f: {class: logging.FileHandler, filename: canary}}}}": "hydra.job_logging",
    "hydra: {job: {chdir: true}, run: {dir: canary}}": "hydra.job",
    "hydra: {launcher: {setup: [touch canary]}}": "hydra.launcher",
    "hydra: {sweeper: {_target_: os.system}}": "hydra.sweeper._target_",
    "hydra: {sweeper: {params: {hydra.run.dir: canary}}}": "hydra.sweeper.params.hydra.run.dir",
    'hydra: {sweeper: {params: {+trust: "[json]"}}}': "hydra.sweeper.params.+trust",
    'hydra: {overrides: {task: ["trust=[json]"]}}': "hydra.overrides",
    "trust: [json]": "trust",
    "overwrite: true": "overwrite=True: expected on the command line, not in a file",
    "defaults: [/task@hydra.callbacks: add]": "hydra.callbacks",
    "{hydra: '${task}', task: {callbacks: {x: {_target_: os.getcwd}}}}": "sets hydra;",
    "hydra: {sweeper: {params: '${task}'}}": "hydra.sweeper.params",
    "hydra: [1]": "experiment/theirs.yaml",
    "# @package hydra.callbacks\nx: {_target_: os.getcwd}": "experiment/theirs.yaml: sets hydra.callbacks; expected",
}


@pytest.mark.parametrize(
    ("text", "multirun"),
    [
        *((text, []) for text in FILES),
        *((text, ["-m"]) for text in FILES if "params" in text or "callbacks: {x" in text),
    ],
)
def test_file_that_configures_hydra_or_trusts_is_refused_before_anything_happens(text, multirun, main, tmp_path):
    (tmp_path / "own" / "experiment").mkdir(parents=True)
    header = "" if text.startswith("#") else "# @package _global_\n"
    (tmp_path / "own" / "experiment" / "theirs.yaml").write_text(f"{header}{text}\n")
    words = [*multirun, f"--config-dir={tmp_path / 'own'}", "experiment=theirs", "runs_dir=runs"]
    result = main("train.py", *words, cwd=tmp_path)
    assert result.returncode == 1
    assert FILES[text] in result.stderr
    assert len(result.stderr.splitlines()) <= 1 + len(multirun)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
    assert "json" not in build._trusted


def test_sweep_of_a_file_and_what_is_typed_are_allowed(monkeypatch):
    monkeypatch.setattr(build, "_trusted", set())
    compose("train", ["experiment=fig1", "hydra.verbose=true", "trust=[json]"])
    assert build._trusted == {"json"}


@pytest.mark.parametrize("typed", [[], ["trust=[mine]"]])
def test_package_of_the_current_folder_is_found_only_if_trust_is_typed(typed, monkeypatch, tmp_path):
    monkeypatch.setattr(build, "_trusted", set())
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])  # as ``arith-train`` has it
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    compose("train", typed)
    assert (find_spec("mine") is not None) == bool(typed)
    assert sys.path[0] != str(tmp_path)  # installed packages come first


# Numbers


@pytest.mark.parametrize(
    ("integer", "real"),
    [
        (["model=nanogpt", "model.gradient_clip=1"], ["model=nanogpt"]),
        (["model.optimizer.weight_decay=0"], []),
        (["model.net.dropout=0"], ["model.net.dropout=0.0"]),
        (["model.net.dropout=-0.0"], ["model.net.dropout=0.0"]),
        (["model.gradient_clip=1"], ["model.gradient_clip=1.0"]),
        (["trainer.stop_at=1"], ["trainer.stop_at=1.0"]),
        (["model.optimizer.betas=[0,0.98]"], ["model.optimizer.betas=[0.0,0.98]"]),
    ],
)
def test_integer_and_equal_real_number_are_one_run(integer, real):
    assert compose("train", integer).run.name == compose("train", real).run.name


def test_integer_too_large_for_a_real_number_is_refused():
    with pytest.raises(UserError, match=r"^trainer\.stop_at=1000.*: expected an accuracy from 0 to 1, or null"):
        compose("train", [f"trainer.stop_at=1{'0' * 400}"])


def test_integers_stay_integers():
    task = compose("train", ["model.net.num_layers=3", "task.bits=5"]).resolved["task"]
    assert type(task["bits"]) is int


def test_resolved_configuration_has_no_interpolations():
    assert "${" not in str(compose("train").resolved) + str(compose("probe").resolved)
