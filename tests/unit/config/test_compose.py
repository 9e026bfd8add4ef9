"""What a composition leaves behind, who may trust and overwrite, and how numbers are written."""

import sys
from importlib.util import find_spec

import pytest
from hydra import compose as hydra_compose
from hydra.core.global_hydra import GlobalHydra

from arith_erd.config import build
from arith_erd.config.compose import compose, hydra_over_conf
from arith_erd.errors import UserError


def test_hydra_of_the_caller_stays_initialised():
    with hydra_over_conf():
        compose("train", ["task=mul"])
        with pytest.raises(UserError, match=r"model\.net\.encoder"):
            compose("train", ["model=nanogpt", "model.net.encoder=false"])
        assert hydra_compose("train", ["task=add"]).task.name == "add"
    assert not GlobalHydra.instance().is_initialized()


# Trust


@pytest.mark.parametrize("text", ["trust: [json]", "overwrite: true", 'hydra: {sweeper: {params: {+trust: "[json]"}}}'])
def test_file_cannot_trust_or_overwrite(text, main, tmp_path):
    (tmp_path / "own" / "experiment").mkdir(parents=True)
    (tmp_path / "own" / "experiment" / "theirs.yaml").write_text(f"# @package _global_\n{text}\n")
    words = ["-m", f"--config-dir={tmp_path / 'own'}", "experiment=theirs", "runs_dir=runs"]
    result = main("train.py", *words, cwd=tmp_path)
    assert result.returncode == 1
    assert "expected on the command line, not in a file" in result.stderr
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
        (["model.net.dropout=-0.0"], ["model.net.dropout=0.0"]),
        (["trainer.stop_at=1"], ["trainer.stop_at=1.0"]),
        (["model.optimizer.betas=[0,0.98]"], ["model.optimizer.betas=[0.0,0.98]"]),
    ],
)
def test_integer_and_equal_real_number_are_one_run(integer, real):
    assert compose("train", integer).run.name == compose("train", real).run.name


def test_integers_stay_integers():
    task = compose("train", ["model.net.num_layers=3", "task.bits=5"]).resolved["task"]
    assert type(task["bits"]) is int


def test_resolved_configuration_has_no_interpolations():
    assert "${" not in str(compose("train").resolved) + str(compose("probe").resolved)
