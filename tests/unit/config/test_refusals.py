"""Every value that could not be trained with is refused in one line: what was received, what is accepted, which key."""

import copy
import re
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

import arith_erd as ae
from arith_erd.bundled import CONF
from arith_erd.config.class_spec import ClassSpec, trust
from arith_erd.config.compose import compose
from arith_erd.config.hydra_conf import OPTION_GROUPS, PRESET_GROUPS
from arith_erd.config.job import read_job
from arith_erd.errors import UserError, bad_value

pytestmark = pytest.mark.slow_after(8)

# Values that no key of a kind takes. The message starts with KEY=VALUE.
COUNT = ("0", "-1", "1.5", "12.0", "null", "true", "many", "inf", "nan", "[5]", "''", "1e3", "9" * 400)
NUMBER = ("0", "-1", "1e300", "null", "true", "fast", "inf", "nan", "[0.001]", "''", "9" * 400)
FRACTION = ("-0.1", "1.0001", "95", "true", "soon", "inf", "nan", "95%", "[0.5]", "9" * 400)
SWITCH = ("null", "1", "0", "maybe", "yes_please", "[true]", "''")
WORD = ("null", "1", "Reverse", "''", "[plain]", "true")
FOLDER = ("''", "null", "3", "true", "[runs]")
BETAS = ("null", "0.9", "[0.9]", "[0.9,1]", "[0.9,high]", "[0.9,-0.1]", "[0.9,0.98,0.99]", "[0.9,nan]", "[true,0.98]")
NET, ADAM = "model.net", "model.optimizer"
VALUES = {
    **dict.fromkeys(("data.batch_size", "trainer.max_epochs", "checkpoint.every_n_epochs"), COUNT),
    "pack.max_replicas": COUNT[:-1],
    **dict.fromkeys((f"{NET}.d_model", f"{NET}.num_heads", f"{NET}.num_layers"), COUNT),
    "task.bits": (*COUNT, "1"),
    "split.seed": COUNT[1:-1],
    **dict.fromkeys((f"{ADAM}.lr", f"{ADAM}.eps"), NUMBER),
    f"{ADAM}.weight_decay": NUMBER[1:],
    "model.gradient_clip": tuple(value for value in NUMBER if value != "null"),
    "trainer.stop_at": FRACTION,
    "split.fraction": (*FRACTION, "0", "1", "null"),
    f"{NET}.dropout": (*FRACTION, "1", "null"),
    **dict.fromkeys((f"{NET}.attention", f"{NET}.feed_forward", f"{NET}.positional_encoding", "fail_fast"), SWITCH),
    **dict.fromkeys((f"{NET}.encoder", "trainer.cuda_graphs"), SWITCH),
    **dict.fromkeys(("trainer.compile", "checkpoint.keep_last"), SWITCH),
    "model.loss.label_smoothing": (*FRACTION, "1", "null"),
    **dict.fromkeys(("task.prompt_order", "task.completion_order", "trainer.precision", "trainer.accelerator"), WORD),
    "runs_dir": FOLDER,
    "seed": ("4-0", "-1", "[]", "null", "true", "inf", "[a]", "[0.5]"),  # more in ``tests/unit/test_seeds.py``
    f"{ADAM}.betas": BETAS,
    "checkpoint.keep": ("every:0", "every:-1", "every:1.5", "every:x", "every", "some", "null", "1", "true", "[all]"),
}

# Anything else: what is typed; the message has to name the key that was typed last.
OTHERS = (
    *("task=subtract", "task=null", "task=Add", "split=vs_x", "model=gpt5", "ablation=no_brain", "logger=mlflow"),
    *("experiment=fig99", "model=nanogpt ablation=squeezed_encoder", "model=nanogpt model.net.encoder=false"),
    *("model.net.d_model=36", "task=random_output task.seed=-1", "task=random_output task.seed=1.5"),
    *("task=random_output task.seed=null", "task.seed=0", "split=vs_t split.fraction=0.5", "optimizer=sgdd"),
    *("optimizer=null", "task=1", "optimizer=sgd model.optimizer.betas=[0,0]"),
    *("scheduler=step model.scheduler.interval=day", "model.scheduler=3"),
    *("scheduler=step model.scheduler.step_size=2.5", "scheduler=step model.scheduler.gamma=0"),
    *("model.scheduler._target_=torch.optim.lr_scheduler.StepLR", "loss=mse"),
    *("loss=cross_entropy_and_value model.loss.weight=0", "loss=cross_entropy_and_value model.loss.site=3"),
    *("loss=cross_entropy_and_value model.loss.target=''", "overwrite=1", "trust=3", "trust=[a/b]"),
    *("logger=wandb logger.mode=on", "logger=wandb logger.mode=null", "logger=wandb logger.timeout=0"),
    *("logger=wandb logger.timeout=soon", "logger=wandb logger.timeout=inf", "logger=wandb logger.artifacts=maybe"),
    *("logger=wandb logger.project=''", "logger=wandb logger.entity=[3]"),
    *("logger=wandb logger.project=a/b", "logger=wandb logger.entity=a/b"),
    *("trainer.epochs=3", "lr=1", "+model.net.dropuot=0"),
    *("optimizer=sgd model.optimizer.momentum=5", "+seeds=3", "epochs.sub=3", "~seed", "~task.bits"),
    *("~trainer.stop_at", "~data", "trainer.max_epochs=${epochs.sub}", "trainer.max_epochs=${nowhere}"),
    *("trainer.max_epochs=${trainer.max_epochs}", "seed=${oc.env:NO_SUCH_VARIABLE}", "trainer.max_epochs=???"),
    *("seed={a:1}", "task=", "split=../..", "task.min_bits=2 data.examples=null"),
    *("task.name=mul", "++model.name=nanogpt"),
)

# Where the message names something else.
NAMING = (
    ("model.net.num_heads=3", "model.net.d_model"),
    ("ablation=d_model_32 model.net.num_heads=5", "model.net.d_model"),
    ("split=length split.trained=3", "split=length: expected task.min_bits"),
    ("scheduler=cosine", "expected one of none, step, warmup_cosine, warmup_linear; did you mean warmup_cosine?"),
    ("optimizer.lr=1", "did you mean model.optimizer.lr"),
    ("~split", "~split: "),
    ("model.scheduler={_target_:torch.optim.lr_scheduler.StepLR,step_size:3}", "model.scheduler.interval: missing"),
    ("scheduler=step model.scheduler.gama=1", "model.scheduler.gamma"),
    ("task._target_=my_package.tasks.Gcd", "trust=[my_package]"),
    ("task._target_=os.system", "_target_"),
    ("task.bits=10", "data.examples=null"),
    ("split._target_=arith_erd.splits.Nothing", "_target_"),
    ("optimizer={lr:1}", "optimizer={...}"),
    ("model.optimizer=adam", "model.optimizer=adam: expected optimizer=adam"),
    ("model.net=nanogpt", "model.net=nanogpt: expected model=nanogpt"),
    ("logger=[csv,wandb]", "expected one logger; the CSV files are written anyway"),
    ("runs_dir=3", "expected a folder, such as ./3"),
    ("hydra.searchpath=conf", "expected a list of folders, hydra.searchpath=[conf]"),
    ("~max_epoch", "did you mean trainer.max_epochs?"),
    *((f"+task={task}", "+task: is set already; expected task=OPTION") for task in ("add", "mul")),
    ("=3", "=3: expected KEY=VALUE"),
    *((f"{typed}", f"{typed}: expected -m too") for typed in ("wait=false", "fail_fast=true", "job_index=0")),
    ("data={x:1}", "data={...}"),
    pytest.param(f"seed={'[' * 500}{']' * 500}", "[ ...: nested too deeply; expected at most 50 levels", id="nested"),
    ("epochs=3 trainer.stop_at=0.5", "trainer.max_epochs=3"),
    *((f"split._target_={target}", target) for target in ("arith_erd.models.Transformer", "torch.optim.Adam")),
    *((f"split._target_={target}", target) for target in ("arith_erd.nowhere.Add", "torch.os.system")),
)


def typed_into(config: dict, override: str) -> object:
    """The value that composing ``group.key=value`` gives, in a hundredth of the time."""
    parsed = OverridesParser.create().parse_override(override)
    *path, key = parsed.key_or_group.split(".")
    node, value = reduce(getitem, path, config), parsed.value()
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
        assert str(refused.value).startswith(str(bad_value(key, value, "")))
        assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("typed", "key"), [*((typed, typed.split()[-1].partition("=")[0].lstrip("+~")) for typed in OTHERS), *NAMING]
)
def test_any_wrong_value_is_refused_by_its_key(typed, key):
    with pytest.raises(UserError) as refused:
        compose("train", typed.split())
    message = str(refused.value)
    assert key in message
    assert "\n" not in message
    assert len(message) < 400


def test_a_class_that_refuses_arguments_itself_is_refused_by_its_key():
    assert ae.Transformer  # a public class, once loaded, raises a line of its own
    with pytest.raises(UserError, match=r"^split\._target_=arith_erd\.models\.Transformer: Transformer: "):
        compose("train", ["split._target_=arith_erd.models.Transformer"])


@pytest.mark.parametrize(
    ("override", "accepted"),
    [
        *((override, "a folder") for override in ("out=''", "out=3", "runs_dir=null")),
        *((override, "a ") for override in ("probe.needs=[world]", "probe.needs=task")),
        *((override, "all, or distinct epochs") for override in ("epoch=never", "epoch=[]")),
        ("probe.name=x", "probe=OPTION"),
        ("figure=appendixD probe=dataset", "no probe= beside figure=appendixD"),
        ("run=3", "a run directory, a glob of them in quotes, or null"),
        ("probe=errors probe.limit=[]", ""),
    ],
)
def test_bad_values_of_a_probe_are_refused_by_key(override, accepted):
    with pytest.raises(UserError, match=rf"^{override.split()[-1].partition('=')[0]}.*: (expected {accepted}|no such)"):
        compose("probe", override.split())


def test_smallest_and_largest_values_are_accepted(config):
    smallest = "task.bits=2 data.batch_size=1 trainer.max_epochs=1 trainer.stop_at=0 model.net.dropout=0"
    largest = "task.bits=9 trainer.stop_at=1 model.gradient_clip=null seed=2147483647 checkpoint.keep=every:3"
    for words in (smallest + " model.optimizer.betas=[0,0.999] model.optimizer.weight_decay=0", largest):
        for override in words.split():
            typed_into(config, override)
        read_job(config)


@pytest.mark.parametrize("plus", ["", "+"])
@pytest.mark.parametrize(
    ("key", "hint"),
    [
        *(("device", "trainer.accelerator"), ("model.net.dropuot", "model.net.dropout"), ("taks", "task")),
        *(("batch_size", "data.batch_size"), ("data.mode", "expected one of|did you mean")),
    ],
)
def test_unknown_keys_are_refused_with_a_hint(plus, key, hint):
    with pytest.raises(UserError, match=rf"{key}: no such key; .*({hint})"):
        compose("train", [f"{plus}{key}=3"])


@pytest.mark.parametrize("key", ["model.label_smoothing", "ablation.3", "resolved", "typed"])
def test_unread_keys_in_files_are_refused(key, config):
    *path, name = key.split(".")
    reduce(getitem, path, config)[int(name) if name.isdigit() else name] = 0.1
    with pytest.raises(UserError, match=rf"^{re.escape(key)}: no such key; (did you mean|expected one of) "):
        read_job(config)


@pytest.mark.parametrize("key", ["model.gradient_clip", "model.net", "trainer.max_epochs", "split"])
def test_missing_key_is_named(key, config):
    *path, name = key.split(".")
    del reduce(getitem, path, config)[name]
    with pytest.raises(UserError, match=rf"^{key}: missing; expected a value for it"):
        read_job(config)


@pytest.mark.parametrize("path", ["a=b", "~/runs", "läufe", "a#b", "a[b]", "a,b", "it's", "{a", "a'b\\", "\\'"])
def test_path_that_needs_quotes_is_refused_with_the_quoted_path(path):
    with pytest.raises(UserError, match=rf"^runs_dir={re.escape(path)}: expected ") as raised:
        compose("train", [f"runs_dir={path}"])
    hint = re.search(r'"(runs_dir=.*)"', str(raised.value))
    assert compose("train", [hint[1]]).runs_dir == Path(path).expanduser()


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("key", sorted({*OPTION_GROUPS, *PRESET_GROUPS} - {"logger"}))  # `NAMING` has its line
def test_group_takes_one_option(key):
    program = "probe" if key in ("figure", "probe") else "train"
    with pytest.raises(UserError, match=rf"^{key}=a,b: expected -m too, for one job per value, or"):
        compose(program, [f"{key}=a,b"])
    listed = ",".join(sorted(path.stem for path in (CONF / key).glob("*.yaml"))[:2])
    with pytest.raises(UserError, match=rf"^{key}=\[{listed}\]: expected one option, or -m for one job each: {key}="):
        compose(program, [f"{key}=[{listed}]"])


@pytest.mark.parametrize("typed", ["task", "seed=[0,1", "seed='0", "task=add="])
def test_override_that_cannot_be_read_is_named_in_one_line(typed):
    with pytest.raises(UserError, match=rf"^{re.escape(typed)}: expected KEY=VALUE, such as"):
        compose("train", [typed])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("broken.A", r"importing .* fails with SyntaxError: invalid"),
        ("needy.A", r".*ModuleNotFoundError: No module named 'nothing_there'$"),
        *((name, ".*none has that name$") for name in ("empty.A", "absent.A")),
    ],
)
def test_failed_import_is_explained_in_one_line(package, target, message):
    package("somebody", broken="def f(:\n", needy="import nothing_there\n", empty="")
    trust("somebody")
    with pytest.raises(UserError, match=rf"^group\._target_=somebody\.{target}: {message}"):
        ClassSpec.from_group("group", {"_target_": f"somebody.{target}"}).build(object)
    for name in ("nothing_there", "somebody.absent"):
        with pytest.raises(UserError, match=rf"^trust={name}: expected a package that Python finds"):
            trust(name)


@pytest.mark.parametrize(
    ("typed", "old", "new"),
    [
        *(("task=add", "item", "job_index"), ("probe=errors", "reference", "handcoded")),
        ("probe=patching", "probe.pairs", "probe.num_examples"),
        ("probe=dose", "probe.sample", "probe.num_examples"),
        ("probe=place_value", "probe.draws", "probe.num_examples"),
        ("probe=place_value", "probe.pairs", "probe.num_pairs"),
        ("probe=subspaces", "probe.random", "probe.num_controls"),
        ("probe=amnesic", "probe.controls", "probe.num_controls"),
        ("probe=patching", "probe.source", "probe.corruption"),
    ],
)
def test_key_of_an_earlier_version_is_refused_with_its_new_name(typed: str, old: str, new: str) -> None:
    with pytest.raises(UserError, match=rf"^{re.escape(old)}: no such key; did you mean {re.escape(new)}\?$"):
        compose("train" if typed == "task=add" else "probe", [typed, f"{old}=64"])
