"""How often Hydra composes, what a composition leaves behind, what trust reaches, and how numbers are written."""

import sys
from importlib.util import find_spec

import pandas as pd
import pytest
from hydra import compose as hydra_compose
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra

from arith_erd.config import build
from arith_erd.config import compose as compose_module
from arith_erd.config.compose import compose, hydra_over_conf
from arith_erd.errors import UserError


def test_run_of_the_program_composes_hydra_once(main, tmp_path, monkeypatch):
    made, real = [], ConfigLoaderImpl._load_configuration_impl

    def counted(loader, config_name, overrides, *others, **named):
        made.append(overrides)
        return real(loader, config_name, overrides, *others, **named)

    monkeypatch.setattr(ConfigLoaderImpl, "_load_configuration_impl", counted)
    compose_module._composed.cache_clear()
    monkeypatch.setattr("arith_erd.training.__main__.train", lambda job: [])
    monkeypatch.setattr("arith_erd.training.__main__.load_table", lambda runs: pd.DataFrame({"val_seq_acc": [0.0]}))
    assert main("train.py", "task=mul", "model=nanogpt", "seed=0-4", f"runs_dir={tmp_path}").returncode == 0
    assert len(made) == 1


def test_hydra_of_the_caller_stays_initialised():
    with hydra_over_conf():
        compose("train", ["task=mul"])
        with pytest.raises(UserError, match=r"model\.net\.encoder"):
            compose("train", ["model=nanogpt", "model.net.encoder=false"])
        assert hydra_compose("train", ["task=add"]).task.name == "add"
    assert not GlobalHydra.instance().is_initialized()


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


@pytest.mark.parametrize(
    ("key", "integer", "real"),
    [("net.dropout", "0", "-0.0"), ("gradient_clip", "1", "1.0"), ("optimizer.betas", "[0,0.9]", "[0.0,0.9]")],
)
def test_integer_and_equal_real_number_are_one_run(key, integer, real):
    assert len({compose("train", [f"model.{key}={value}"]).run.name for value in (integer, real)}) == 1
