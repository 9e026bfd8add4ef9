"""Every option can be chosen and built; every value that could not be trained with is refused by its key."""

import copy
import re
import sys
from dataclasses import fields
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest
import torch
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from arith_erd.bits import START
from arith_erd.config import build as build_module
from arith_erd.config.build import Factory
from arith_erd.config.compose import CONF, compose
from arith_erd.config.explain import GROUPS, PRESETS
from arith_erd.config.groups import LOGGER, LOSS, NETWORK, OPTIMIZER, Checkpointing, Data, Packing, Training
from arith_erd.config.read import read_job
from arith_erd.config.explain import as_text
from arith_erd.errors import UserError
from arith_erd.interp.hooked import Hooked
from arith_erd.loggers import Logger
from arith_erd.models import Transformer
from arith_erd.models.dropout import set_dropout_keys
from arith_erd.probes.probe import Probe
from arith_erd.tasks import Add
from tests.hostile.configurations import OTHERS, VALUES, malformed


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


MODELS, ABLATIONS = options("model"), options("ablation")
OPEN = {"model.net": NETWORK, "model.optimizer": OPTIMIZER, "model.loss": LOSS, "logger": LOGGER}
IMPOSSIBLE = {("nanogpt", "squeezed_encoder")}


def build(node, kind: type = object):
    return Factory.read("group", node).build(kind)


# Every option


def test_groups_are_those_of_the_design():
    assert set(options("task")) >= {"add", "mul", "random_output"}
    assert set(options("split")) >= {"random", "vs_t", "vs_v"}
    assert set(MODELS) >= {"transformer", "nanogpt"}
    assert set(ABLATIONS) >= {
        "none",
        "squeezed_encoder",
        "one_head",
        "d_model_32",
        "no_positional_encoding",
        "no_attention",
        "no_feed_forward",
    }
    assert set(options("logger")) >= {"csv", "wandb"}


@pytest.mark.parametrize("name", options("task"))
@pytest.mark.parametrize("order", ["reverse", "plain"])
def test_every_task_builds(name, order):
    more = ["task.modulus=8"] if name == "mod_add" else []
    task = compose("train", [f"task={name}", "task.bits=3", f"task.prompt_order={order}", *more]).task
    assert (task.name, task.bits, task.prompt_order, task.base) == (name, 3, order, 2)
    assert len(task.examples()) == 8**task.operands


def test_networks_know_the_tokens_of_the_task():
    job = compose("train", ["task.base=10", "task.bits=2", "model=nanogpt"])
    prompt, answer_in = torch.full((2, 5), 12), torch.full((2, 3), START)
    assert job.network().eval()(prompt, answer_in).shape == (2, 3, 13)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["task.base=10"], r"^task\.bits=7: expected an integer from 1 to 3$"),
        (["task.base=1"], r"^task\.base=1: expected an integer from 2 to 16$"),
        (
            ["task.base=10", "task.bits=2", "split=vs_t"],
            r"^task\.base=10: split=vs_t needs bits; expected task\.base=2$",
        ),
        (
            ["task=mod_add", "task.bits=4"],
            r"^task\.modulus=97: expected an integer from 2 to 16; .* task\.bits than 4$",
        ),
        (["task=add3", "task.bits=7"], r"^task\.bits=7: expected an integer from 2 to 6$"),
    ],
)
def test_tasks_that_cannot_be_are_refused(overrides, message):
    with pytest.raises(UserError, match=message):
        compose("train", overrides)


@pytest.mark.parametrize("name", options("split"))
def test_every_split_builds(name):
    assert compose("train", [f"split={name}"]).split(Add(3).examples()).sum() == 16


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("ablation", ABLATIONS)
def test_every_model_and_ablation_builds_and_learns_one_step(model, ablation):
    if (model, ablation) in IMPOSSIBLE:
        return
    job = compose("train", [f"model={model}", f"ablation={ablation}"])
    assert (job.model.name, job.ablation.name) == (model, ablation)
    network = job.network()
    set_dropout_keys(network, torch.zeros(2, dtype=torch.int32))
    optimizer = job.model.optimizer.build(torch.optim.Optimizer, network.parameters())
    prompt, answer_in = torch.full((2, 15), 3), torch.full((2, 8), START)
    network(prompt, answer_in).square().mean().backward()
    optimizer.step()
    assert network(prompt, answer_in).shape == (2, 8, 5)


@pytest.mark.parametrize("ablation", [name for name in ABLATIONS if name != "none"])
@pytest.mark.parametrize("model", MODELS)
def test_ablation_changes_only_the_network(model, ablation):
    if (model, ablation) in IMPOSSIBLE:
        return
    full, ablated = (compose("train", [f"model={model}", f"ablation={name}"]).resolved for name in ("none", ablation))
    assert full["model"]["net"] != ablated["model"]["net"]
    assert {key for key in full if full[key] != ablated[key]} == {"ablation", "model"}
    assert {key for key in full["model"] if full["model"][key] != ablated["model"][key]} == {"net"}


def test_squeezing_the_encoder_of_a_decoder_only_model_is_refused():
    with pytest.raises(UserError, match=r"ablation=squeezed_encoder: .* model=nanogpt does not have"):
        compose("train", ["model=nanogpt", "ablation=squeezed_encoder"])


@pytest.mark.parametrize("group", ["optimizer", "scheduler", "loss"])
def test_option_of_a_recipe_replaces_what_the_model_chose(group):
    for name in options(group):
        written = yaml.safe_load((CONF / group / f"{name}.yaml").read_text())
        model = compose("train", ["model=nanogpt", f"{group}={name}"]).resolved["model"]
        assert (model[group] or {}).keys() == written.keys() - {"scheduler"}
        if model[group]:
            assert model[group]["_target_"] == written["_target_"]


def test_model_with_an_optimizer_of_its_own_gets_no_half_of_another(tmp_path):
    (tmp_path / "model").mkdir()
    own = "name: own\nnet: {_target_: arith_erd.models.NanoGPT}\ngradient_clip: null\n"
    own += "optimizer: {_target_: torch.optim.Adam, lr: 1.0, amsgrad: true}\n"
    (tmp_path / "model" / "own.yaml").write_text(own)
    search = f"hydra.searchpath=[file://{tmp_path}]"
    assert compose("train", [search, "model=own"]).model.optimizer.arguments == {"lr": 1.0, "amsgrad": True}
    with pytest.raises(UserError, match=r"^optimizer=sgd: model=own sets model\.optimizer itself; expected .*override"):
        compose("train", [search, "model=own", "optimizer=sgd"])


@pytest.mark.parametrize("name", options("logger"))
def test_every_logger_builds(name):
    assert isinstance(compose("train", [f"logger={name}"]).logger.build(Logger), Logger)


@pytest.fixture(scope="module")
def subject() -> Hooked:
    """An untrained network of three-bit addition."""
    task = Add(3)
    torch.manual_seed(0)
    network = Transformer(task.prompt_length, task.width, d_model=16, num_heads=2, num_layers=6).eval()
    split = build({"_target_": "arith_erd.splits.RandomSplit"})
    return Hooked(network, name="untrained", task=task, split=split)


def built_probe(overrides: list[str], subject: Hooked) -> Probe:
    job = compose("probe", overrides)
    things = {"task": job.task, "split": job.split, "subjects": [subject]}
    return job.probe.build(Probe, **{need: things[need] for need in job.needs})


@pytest.mark.parametrize("name", options("probe"))
def test_every_probe_builds(name, subject):
    assert isinstance(built_probe([f"probe={name}", "task.bits=3"], subject), Probe)


@pytest.mark.parametrize("name", options("figure"))
def test_every_figure_preset_builds(name, subject):
    assert isinstance(built_probe([f"figure={name}", "task.bits=3"], subject), Probe)


def test_defaults_are_those_of_the_paper():
    job = compose("train")
    assert job.title == "add, random, transformer"
    assert job.data.batch_size == 128
    paper = {"lr": 1e-4, "betas": [0.9, 0.98], "eps": 1e-9, "weight_decay": 0.0, "fused": True}
    assert job.model.optimizer.arguments == paper
    nanogpt = compose("train", ["model=nanogpt"]).model
    assert (nanogpt.optimizer.arguments["lr"], nanogpt.optimizer.arguments["weight_decay"]) == (1e-3, 0.1)
    assert nanogpt.gradient_clip == 1.0


@pytest.mark.parametrize(("task", "epochs"), [("add", 50), ("mul", 250), ("random_output", 1000)])
def test_each_task_is_trained_as_long_as_it_takes(task, epochs):
    assert compose("train", [f"task={task}"]).trainer.max_epochs == epochs


def test_resolved_config_has_no_interpolations():
    assert "${" not in str(compose("train").resolved) + str(compose("probe").resolved)


# Keys that do not exist


@pytest.mark.parametrize("plus", ["", "+"])
@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("trainer.max_epoch", "trainer.max_epochs"),
        ("model.net.dropuot", "model.net.dropout"),
        ("task.bit", "task.bits"),
        ("batch_size", "data.batch_size"),
        ("model.net.hidden_size", "expected one of|did you mean"),
    ],
)
def test_unknown_keys_are_refused_with_a_hint(plus, key, hint):
    with pytest.raises(UserError, match=rf"{key}: no such key; .*({hint})"):
        compose("train", [f"{plus}{key}=3"])


# Values that could not be trained with


def typed_into(config: dict, override: str) -> object:
    """What composing would do with ``group.key=value``, in a hundredth of the time; the value."""
    parsed = OverridesParser.create().parse_override(override)
    *groups, key = parsed.key_or_group.split(".")
    node, value = reduce(getitem, groups, config), parsed.value()
    assert key in node
    node[key] = value
    return value


@pytest.mark.parametrize("key", VALUES)
def test_bad_values_are_refused_by_key_and_value(key, config):
    for typed in VALUES[key]:
        changed = copy.deepcopy(config)
        value = typed_into(changed, f"{key}={typed}")
        with pytest.raises(UserError) as refused:
            read_job(changed)
        assert str(refused.value).startswith(f"{key}={value}: expected ")
        assert str(refused.value).isprintable()


@pytest.mark.parametrize(("typed", "key"), OTHERS)
def test_any_wrong_value_is_refused_by_its_key(typed, key):
    with pytest.raises(UserError) as refused:
        compose("train", typed.split())
    message = str(refused.value)
    assert key in message
    assert "\n" not in message
    assert len(message) < 300


@pytest.mark.parametrize("override", ["out=''", "out=3", "runs_dir=null"])
def test_bad_folders_of_a_probe(override):
    with pytest.raises(UserError, match=rf"^{override.partition('=')[0]}=.*: expected a folder"):
        compose("probe", [override])


@pytest.mark.parametrize("override", ["probe.name=../x", "probe.needs=[world]", "probe.needs=task"])
def test_bad_names_and_needs_of_a_probe(override):
    with pytest.raises(UserError, match=rf"^{override.partition('=')[0]}=.*: expected a "):
        compose("probe", [override])


def test_every_checked_key_refuses_some_value():
    groups = {"data": Data, "trainer": Training, "pack": Packing, "checkpoint": Checkpointing}
    closed = {f"{group}.{f.name}" for group, kind in groups.items() for f in fields(kind)}
    opened = {f"{group}.{key}" for group, rules in OPEN.items() for key in rules}
    assert closed | opened <= {key for _, key in malformed()} | {"pack.part_of"}


@pytest.mark.parametrize(
    "path", ["a=b", "~/runs", "läufe", "a#b", "a{b}", "a[b]", "a(b)", "a,b", "it's", "{a", "a'b\\"]
)
def test_path_that_hydra_reads_in_quotes_only_is_answered_with_them(path):
    with pytest.raises(UserError, match=rf"^runs_dir={re.escape(path)}: expected ") as raised:
        compose("train", [f"runs_dir={path}"])
    if "in pairs" not in str(raised.value):
        hint = re.search(r'"(runs_dir=.*)"', str(raised.value))
        assert compose("train", [hint[1]]).runs_dir == Path(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12",
        " a",
        "-.5E3",
        "1_000",
        "-Inf",
        "x1",
        "2026-11-23",
        "null",
        "1e3",
        "true",
        "a b",
        "it's",
        "a,b",
        "{",
        "\\",
        "a\\'",
        "'",
        '"',
        "läufe",
        "${x}y",
        "a\\\\",
    ],
)
def test_text_is_written_as_hydra_reads_it(text):
    parsed = OverridesParser.create().parse_override(f"key={as_text(text)}")
    assert parsed.value() == text
    assert isinstance(parsed.value(), str)


@pytest.mark.parametrize("key", [*GROUPS, *PRESETS])
def test_group_takes_one_option(key):
    program = "probe" if key in ("figure", "probe") else "train"
    with pytest.raises(UserError, match=rf"^{key}=a,b: expected -m too, for a job of each value$"):
        compose(program, [f"{key}=a,b"])
    options = ",".join(sorted(path.stem for path in (CONF / key).glob("*.yaml"))[:2])
    with pytest.raises(
        UserError, match=rf"^{key}=\[{options}\]: expected one option, or with -m a job of each: {key}="
    ):
        compose(program, [f"{key}=[{options}]"])


@pytest.mark.parametrize("typed", ["task", "seed=[0,1", "seed='0", "task=add="])
def test_override_that_cannot_be_read_is_named_in_one_line(typed):
    with pytest.raises(UserError, match=rf"^{re.escape(typed)}: expected (KEY=VALUE|brackets and quotes in pairs|\")"):
        compose("train", [typed])


@pytest.mark.parametrize(("typed", "hint"), [("taks=mul", "task"), ("modle=nanogpt", "model"), ("spilt=vs_t", "split")])
def test_misspelt_group_is_recognised(typed, hint):
    with pytest.raises(UserError, match=rf"^\w+: no such key; did you mean {hint}\?$"):
        compose("train", [typed])


@pytest.mark.parametrize(
    ("group", "extra", "key"),
    [
        ("model", {"schedule": {"_target_": "torch.optim.lr_scheduler.StepLR"}}, "model.schedule"),
        ("model", {"label_smoothing": 0.1}, "model.label_smoothing"),
        ("trainer", {"gradient_clip": 1.0}, "trainer.gradient_clip"),
        ("ablation", {"note": "mine"}, "ablation.note"),
    ],
)
def test_unread_keys_in_files_are_refused(group, extra, key, config):
    config[group] |= extra
    with pytest.raises(UserError, match=rf"^{re.escape(key)}: no such key; (did you mean|expected one of) "):
        read_job(config)


@pytest.mark.parametrize(
    ("group", "key"), [("model", "gradient_clip"), ("model", "net"), ("trainer", "max_epochs"), (None, "split")]
)
def test_missing_key_is_named(group, key, config):
    del (config[group] if group else config)[key]
    with pytest.raises(UserError, match=rf"{key}: missing; expected a value for it"):
        read_job(config)


@pytest.mark.parametrize("target", ["arith_erd.models.Transformer", "arith_erd.tasks.Add", "torch.optim.Adam"])
def test_target_of_another_group_is_refused_as_split(target, config):
    config["split"] = {"name": "x", "_target_": target}
    with pytest.raises(UserError, match=target):
        read_job(config)


@pytest.mark.parametrize(
    "override",
    [
        "task.bits=2",
        "task.bits=9",
        "split.fraction=0.9",
        "data.batch_size=1",
        "trainer.max_epochs=1",
        "trainer.stop_at=0",
        "trainer.stop_at=1",
        "trainer.stop_at=null",
        "trainer.compile=true",
        "trainer.precision=64-true",
        "model.net.d_model=8",
        "model.net.dropout=0",
        "model.optimizer.lr=1",
        "model.optimizer.betas=[0,0.999]",
        "model.optimizer.weight_decay=0",
        "model.gradient_clip=null",
        "model.gradient_clip=0.5",
        "seed='0-4,7'",
        "seed=[0,1,2]",
        "seed=0-4",
        "seed=2147483647",
    ],
)
def test_good_values_are_accepted(override, config):
    typed_into(config, override)
    read_job(config)


# Targets


OUTSIDE = ["os.system", "builtins.eval", "pathlib.Path", "subprocess.run", "arith_erdevil.run", "torchvision.x", ""]


@pytest.mark.parametrize("target", OUTSIDE)
def test_targets_outside_the_allow_list_are_refused(target):
    for node in (
        {"_target_": target},
        {"_target_": "arith_erd.tasks.Add", "bits": {"_target_": target}},
        {"_target_": "arith_erd.tasks.Add", "bits": {"deep": {"deeper": {"_target_": target}}}},
    ):
        with pytest.raises(UserError, match=r"_target_=.*: expected a class of arith_erd"):
            build(node)


@pytest.mark.parametrize("target", OUTSIDE)
def test_targets_in_lists_are_refused_too(target):
    for bits in ([{"_target_": target}], [[{"_target_": target}]], {"x": [{"y": {"_target_": target}}]}):
        with pytest.raises(UserError, match=r"_target_=.*: expected a class of arith_erd"):
            build({"_target_": "arith_erd.tasks.Add", "bits": bits})


@pytest.mark.parametrize(
    "target", ["torch.os.system", "arith_erd.training.train.subprocess.run", "arith_erd.config.compose.re.compile"]
)
def test_other_modules_are_not_reached_through_allowed_ones(target):
    with pytest.raises(UserError):
        build({"_target_": target})


@pytest.mark.parametrize("target", ["arith_erd.tasks.Div", "arith_erd.nowhere.Add", "torch.optim.Foo"])
def test_missing_target_is_one_line(target):
    with pytest.raises(UserError, match=target):
        build({"_target_": target})


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A trusted package of three modules; two cannot be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(build_module, "_trusted", set())
    folder = tmp_path / "somebody"
    folder.mkdir()
    for name, text in {"__init__": "", "broken": "def f(:\n", "needy": "import nothing_there\n", "empty": ""}.items():
        (folder / f"{name}.py").write_text(text)
    build_module.trust("somebody")
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "somebody"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("broken.A", r"^group\._target_=somebody\.broken\.A: importing .* fails with SyntaxError: invalid"),
        ("needy.A", r"^group\._target_=somebody\.needy\.A: .*ModuleNotFoundError: No module named 'nothing_there'$"),
        ("empty.A", r"^group\._target_=somebody\.empty\.A: .*there is none of that name$"),
        ("absent.A", r"^group\._target_=somebody\.absent\.A: .*there is none of that name$"),
    ],
)
def test_why_a_module_cannot_be_imported_is_one_line(package, target, message):
    with pytest.raises(UserError, match=message):
        build({"_target_": f"somebody.{target}"})


@pytest.mark.parametrize("name", ["nothing_there", "nothing_there.inside", "somebody.absent"])
def test_trust_in_a_package_that_is_not_there_is_refused(package, name):
    with pytest.raises(UserError, match=rf"^trust={name}: expected a package that Python finds"):
        build_module.trust(name)


def test_constructor_errors_become_one_line():
    with pytest.raises(UserError, match=r"^task\.bits=1: expected"):
        build({"_target_": "arith_erd.tasks.Add", "bits": 1})
    with pytest.raises(UserError, match=r"^group\._target_=arith_erd\.tasks\.Add: .*carry"):
        build({"_target_": "arith_erd.tasks.Add", "carry": 1})


def test_optimizer_refusing_its_options_is_one_line(train):
    with pytest.raises(UserError, match=r"Adafactor.*betas"):
        train("model.optimizer._target_=torch.optim.Adafactor")


def test_class_of_a_recipe_is_answered_with_the_recipe():
    said = "model.optimizer._target_=torch.optim.SGD"
    with pytest.raises(UserError, match=rf"^{said}: expected optimizer=sgd, which has the options of that class$"):
        compose("train", [said])
