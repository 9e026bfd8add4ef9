"""Names of runs: defaults add nothing, departures show, and the hash alone finds a run."""

import pytest
import yaml

from arith_erd.config.compose import CONF, compose
from arith_erd.runs import Run, find_run, identity, run_name
from arith_erd.runs.names import SHOWN, departures, own_options


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def put(config, key: str, value):
    """A copy of a configuration with another value."""
    first, _, rest = key.partition(".")
    return config | {first: put(config.get(first) or {}, rest, value) if rest else value}


@pytest.mark.parametrize(
    "overrides",
    [
        *([f"task={name}", *(["task.bits=5"] if name == "add3" else [])] for name in options("task")),
        *([f"split={name}"] for name in options("split")),
        *([f"ablation={name}", "model=transformer"] for name in options("ablation")),
        ["model=nanogpt"],
    ],
    ids=" ".join,
)
def test_defaults_of_every_option_add_nothing(overrides):
    found = departures(identity(compose("train", overrides).resolved))
    assert found == ([] if "task.bits=5" not in overrides else ["bits5"])


@pytest.mark.parametrize("name", options("optimizer"))
def test_rate_of_every_optimizer_is_known(name, config):
    optimizer = yaml.safe_load((CONF / "optimizer" / f"{name}.yaml").read_text())
    who = identity(put(config, "model.optimizer", optimizer))
    assert departures(who) == ([] if name == "adam" else [name])


@pytest.mark.parametrize(("group", "name"), [(g, name) for g in ("scheduler", "loss") for name in options(g)])
def test_defaults_of_a_schedule_and_a_loss_show_only_its_class(group, name, config):
    text = (CONF / group / f"{name}.yaml").read_text()
    for key, value in (("model.optimizer.lr", "0.0001"), ("trainer.max_epochs", "50")):
        text = text.replace(f"${{{key}}}", value)
    chosen = yaml.safe_load(text)
    who = identity(put(config, f"model.{group}", chosen if "_target_" in chosen else None))
    assert own_options(who) == []


def test_runs_in_results_keep_their_names(root):
    paths = [path.parent for path in root.glob("results/runs/*/config.yaml")]
    assert paths
    assert [run_name(Run(path).config()) for path in paths] == [path.name for path in paths]


STEP, VALUE = "torch.optim.lr_scheduler.StepLR", "arith_erd.losses.CrossEntropyAndValue"


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"task.bits": 4, "model.optimizer.lr": 3e-4, "trainer.max_epochs": 100}, "bits4-lr3e-4-ep100"),
        ({"model.optimizer.lr": 0.00012345}, "lr0.00012345"),
        ({"model.optimizer.betas": [0.9, 0.999]}, "betas0.9+0.999"),
        ({"model.gradient_clip": 2.0, "trainer.stop_at": 0.95}, "clip2-stop0.95"),
        ({"trainer.precision": "bf16-mixed"}, "bf16-mixed"),
        ({"model.scheduler": {"_target_": "torch.optim.lr_scheduler.StepLR"}}, "step_lr"),
        ({"model.scheduler": {"_target_": STEP, "step_size": 5, "gamma": 0.5}}, "step_lr-step_size5"),
        ({"model.optimizer.fused": False, "model.optimizer.eps": 1e-6}, "eps1e-6-no_fused"),
        ({"model.loss": {"_target_": VALUE, "site": "dec.1", "weight": 0.5}}, "cross_entropy_and_value-weight0.5"),
        ({"split._target_": "mine.Band", "split.distance": 3, "split.kind": "near"}, "distance3-kind_near"),
        ({"model.net._target_": "mine.Net", "model.net.window": [2, 3]}, "window_2+3"),
        ({"task.prompt_order": "../x y"}, "prompt_.._x_y"),
    ],
)
def test_departures_are_part_of_the_name(changes, shown, config):
    for key, value in changes.items():
        config = put(config, key, value)
    assert run_name(config).startswith(f"add-random-transformer-none-{shown}-seed0-")


def test_name_stays_short_however_much_departs(config):
    for key, shown in SHOWN.items():
        if "target" not in key:
            config = put(config, key, "x" if shown.label == "" else 987654)
    name = run_name(config | {"seed": list(range(0, 4000, 2))})
    assert "-more-" in name
    assert len(name) < 220


def test_run_with_another_name_is_found_by_its_hash(tmp_path, config):
    """As earlier versions named it."""
    config = put(config, "task.bits", 4)
    new = find_run(tmp_path, config)
    assert new.path == tmp_path / run_name(config)
    old = Run(tmp_path / run_name(config).replace("-bits4", ""))
    old.path.mkdir()
    assert find_run(tmp_path, config).path == new.path  # no run yet
    old.create(config)
    assert find_run(tmp_path, config).path == old.path
    new.create(config)
    assert find_run(tmp_path, config).path == new.path
