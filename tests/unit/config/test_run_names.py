"""Run names stay those of the first version, hash what can change the weights, and show unusual settings."""

from pathlib import Path

import pytest

from arith_erd.config.compose import compose, compose_config
from arith_erd.config.run_names import LABEL_OF_KEY, non_default_probe_options, run_for_config, run_name
from arith_erd.runs.directory import Run
from arith_erd.runs.identity import flat_settings
from tests.values import put

pytestmark = pytest.mark.slow_after(12)

RECORDED = [line.split("  ") for line in (Path(__file__).parent / "names.txt").read_text().splitlines()]
"""Names, and the overrides that gave them at commit ac67c71."""


@pytest.mark.parametrize(("name", "overrides"), [(name, " ".join(rest)) for name, *rest in RECORDED])
def test_names_are_those_of_the_commit_that_recorded_them(name, overrides):
    assert run_name(compose_config(overrides.split())) == name


@pytest.mark.parametrize("model", ["gru", "lstm", "mlp"])
def test_name_shows_settings_that_differ_from_the_file_of_its_own_model(model):
    assert run_name(compose("train", [f"model={model}"]).resolved).startswith(f"add-random-{model}-none-seed0-")
    assert "-none-d64-seed0-" in run_name(compose("train", [f"model={model}", "model.net.d_model=64"]).resolved)


def test_runs_in_results_keep_their_names(root):
    paths = [path.parent for path in root.glob("paper/results/*/*/config.yaml")]
    assert len(paths) >= 63
    assert [run_name(Run(path).config()) for path in paths] == [path.name for path in paths]


STEP = "torch.optim.lr_scheduler.StepLR"


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"model.optimizer._target_": "torch.optim.Adafactor"}, "adafactor-lr1e-4-betas0.9+0.98-wd0-eps"),
        ({"model.scheduler": {"_target_": STEP, "interval": "epoch", "step_size": 5, "gamma": 0.5}}, "step_lr-step_"),
        ({"model.scheduler": {"_target_": "mine.Rate", "max_lr": 1e-4, "gamma": 2}}, "rate-max_lr1e-4-gamma2"),
        ({"split._target_": "mine.Band", "split.distance": 3, "split.kind": "near"}, "distance3-kind_near"),
        ({"model.net._target_": "mine.Net", "model.net.window": [2, 3]}, "window_2+3"),
        ({"task.prompt_order": "../x y"}, "prompt_.._x_y"),
        ({"model.loss.variables": {"carry": {"site": "dec.1", "dims": [0, 3]}}}, "carry_dec.1-carry_0+3"),
    ],
)
def test_settings_of_classes_that_conf_does_not_know_are_shown(changes, shown, config):
    for key, value in changes.items():
        config = put(config, key, value)
    assert run_name(config).startswith(f"add-random-transformer-none-{shown}")


@pytest.mark.parametrize(
    ("options", "others", "shown"),
    [
        ({"families.a.vary": "carry"}, {"families.b.vary": "carry"}, "vary_carry-"),
        ({"causal_model": "pa.models.Adder"}, {"causal_model": "pb.models.Adder"}, "causal_model_adder-"),
    ],
)
def test_options_of_a_probe_that_show_alike_have_other_names(options, others, shown):
    names = {
        non_default_probe_options({f"probe.{key}": value for key, value in chosen.items()}, {})
        for chosen in (options, others)
    }
    assert len(names) == 2
    assert all(name.startswith(shown) for name in names)


def test_name_stays_short_however_many_settings_differ(config):
    for key, label in LABEL_OF_KEY.items():
        if "target" not in key:
            config = put(config, key, "x" if label == "" else 987654)
    name = run_name(config | {"seed": list(range(0, 4000, 2))})
    assert "-more-" in name
    assert len(name) < 220


def test_run_with_another_name_is_found_by_its_hash(tmp_path, config):
    """Earlier versions gave runs other names."""
    config = put(config, "task.bits", 4)
    new = run_for_config(tmp_path, config)
    assert new.path == tmp_path / run_name(config)
    old = Run(tmp_path / run_name(config).replace("-bits4", ""))
    old.path.mkdir()
    assert run_for_config(tmp_path, config).path == new.path  # no run yet
    old.create(config)
    assert run_for_config(tmp_path, config).path == old.path
    new.create(config)
    assert run_for_config(tmp_path, config).path == new.path


CONFIG = compose("train", ["logger=wandb", "task=random_output", "model=nanogpt"]).resolved
# What may change without changing the weights; `epochs` only does through trainer.max_epochs.
HARMLESS = (
    *("logger.", "checkpoint.", "epochs.", "fail_fast", "job_index", "wait", "pack.", "runs_dir"),
    *("trainer.compile", "trainer.cuda_graphs", "trainer.accelerator"),
)


@pytest.mark.parametrize("key", [key for key in flat_settings(CONFIG) if key not in ("trust", "overwrite")])
def test_name_tells_apart_what_can_change_the_weights_and_nothing_else(key):
    old = flat_settings(CONFIG)[key]
    number = isinstance(old, int | float) and not isinstance(old, bool)
    other = old + 1 if number else not old if isinstance(old, bool) else f"{old}1" if isinstance(old, str) else 3
    assert (run_name(put(CONFIG, key, other)) == run_name(CONFIG)) is key.startswith(HARMLESS)


def test_name_ignores_the_order_of_keys(config):
    backwards = {key: dict(reversed(v.items())) if isinstance(v, dict) else v for key, v in reversed(config.items())}
    assert run_name(backwards) == run_name(config)
