"""Composing leaves Hydra as it was and trusts only what is typed; all options of conf/ can be built; packs of a job."""

import importlib
import inspect
import itertools
import linecache
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hydra import compose as hydra_compose
from hydra.core.global_hydra import GlobalHydra

from arith_erd.bundled import load_option
from arith_erd.config import class_spec, hydra_conf
from arith_erd.config.class_spec import source_hashes, trust_modules_of
from arith_erd.config.compose import compose, typed_overrides
from arith_erd.config.hydra_conf import hydra_over_conf
from arith_erd.digits import START
from arith_erd.errors import UserError
from arith_erd.interp.hooked import Provenance
from arith_erd.models.dropout import set_dropout_keys
from arith_erd.probes.probe import Probe
from arith_erd.seeds import parse_seeds
from arith_erd.splits import RandomSplit
from arith_erd.tasks import Add
from tests.unit.probes.small import untrained
from tests.values import options

pytestmark = pytest.mark.slow_after(4)


def test_run_of_the_program_composes_hydra_once(main, tmp_path, monkeypatch):
    made, real = [], hydra_compose

    def counted(config_name, overrides, **named):
        made.append(overrides)
        return real(config_name, overrides, **named)

    monkeypatch.setattr("hydra.compose", counted)
    hydra_conf.known_keys.cache_clear()
    monkeypatch.setattr("arith_erd.training.__main__.train", lambda job: [])
    assert main("train.py", "task=mul", "model=nanogpt", "seed=0-4", f"runs_dir={tmp_path}").returncode == 0
    assert len(made) == 1


def test_hydra_of_the_caller_stays_initialised():
    with hydra_over_conf():
        compose("train", ["task=mul"])
        with pytest.raises(UserError, match=r"model\.net\.encoder"):
            compose("train", ["model=nanogpt", "model.net.encoder=false"])
        assert hydra_compose("train", ["task=add"]).task.name == "add"
    assert not GlobalHydra.instance().is_initialized()


def test_trust_that_is_typed_is_allowed(monkeypatch):
    monkeypatch.setattr(class_spec, "_trusted_packages", set())
    compose("train", ["trust=[json]"])
    assert class_spec._trusted_packages == {"json"}


@pytest.mark.parametrize("words", ["experiment=fig1", "job_index=3", "hydra/launcher=slurm", "hydra.verbose=true"])
def test_setting_that_needs_a_sweep_is_refused_as_on_the_command_line(words):
    with pytest.raises(UserError, match=f"^{words}: .*expected -m"):
        compose("train", [words])


def test_a_preset_that_sets_one_value_is_a_sweep_too(tmp_path):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "one.yaml").write_text("# @package _global_\nhydra: {sweeper: {params: {seed: 1}}}\n")
    own = [f"hydra.searchpath=[file://{tmp_path}]", "experiment=one"]
    with pytest.raises(UserError, match=r"^experiment=one: a sweep of 1 job; expected -m"):
        compose("train", own)
    assert compose("train", [*own, "seed=3"]).seeds == (3,)


def test_values_of_python_are_written_as_hydra_reads_them():
    variables = {"carry": {"site": "dec.1", "dims": [0, 15]}}
    options = {"model": "nanogpt", "loss": "interchange", "model.loss.variables": variables}
    assert compose("train", options).resolved["model"]["loss"]["variables"] == variables
    assert typed_overrides({"a": ["b,c", "it's", 1.5, None]}) == ["a=['b,c','it\\'s',1.5,null]"]


@pytest.mark.parametrize("typed", [[], ["trust=[mine]"]])
def test_package_of_the_current_folder_is_found_only_if_trust_is_typed(typed, monkeypatch, tmp_path):
    monkeypatch.setattr(class_spec, "_trusted_packages", set())
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


@pytest.mark.parametrize("seeds", ["0-18", "1,3,5,7-40", "0"])
@pytest.mark.parametrize("limit", [5, "auto", 1, 64])
def test_every_seed_is_in_one_pack_and_no_pack_is_too_large(seeds, limit):
    job = compose("train", [f"seed='{seeds}'"])
    packs = replace(job, pack=replace(job.pack, max_replicas=limit)).packs()
    assert tuple(itertools.chain.from_iterable(pack.seeds for pack in packs)) == parse_seeds(seeds)
    assert max(len(pack.seeds) for pack in packs) <= (len(job.seeds) if limit == "auto" else limit)
    assert {pack.pack.part_of for pack in packs} == ({None} if len(packs) == 1 else {seeds})


MODELS = options("model")
BASELINES = {"gru", "lstm", "mlp"}  # without most of what ablations remove
PAIRS = [
    (m, a)
    for m in MODELS
    for a in options("ablation")
    if (m, a) != ("nanogpt", "squeezed_encoder") and (m not in BASELINES or a in ("none", "d_model_16", "d_model_32"))
]


@pytest.mark.parametrize("name", options("task"))
@pytest.mark.parametrize("order", ["reverse", "plain"])
def test_every_task_builds(name, order):
    more = ["task.modulus=8"] if name == "mod_add" else []
    task = compose("train", [f"task={name}", "task.bits=3", f"task.prompt_order={order}", *more]).task
    assert (task.name, task.bits, task.prompt_order, task.base) == (name, 3, order, 2)
    assert len(task.examples()) == 8**task.num_operands


@pytest.mark.parametrize(("model", "ablation"), PAIRS)
def test_every_model_and_ablation_builds_and_learns_one_step(model, ablation):
    job = compose("train", [f"model={model}", f"ablation={ablation}"])
    assert (job.model.name, job.ablation.name) == (model, ablation)
    network = job.network()
    set_dropout_keys(network, torch.zeros(2, dtype=torch.int32))
    optimizer = job.model.optimizer.build(torch.optim.Optimizer, network.parameters())
    prompt, answer_in = torch.full((2, 15), 3), torch.full((2, 8), START)
    network(prompt, answer_in).square().mean().backward()
    optimizer.step()
    assert network(prompt, answer_in).shape == (2, 8, 5)


@pytest.mark.parametrize("model", MODELS)
def test_scale_changes_sizes_that_the_model_has_and_adds_none(model):
    full, mini = (
        compose("train", [f"model={model}", f"scale={scale}"]).resolved["model"]["net"] for scale in ("full", "mini")
    )
    assert full.keys() == mini.keys()
    assert (mini["d_model"], mini["num_layers"], mini.get("num_heads", 4)) == (32, 3, 4)


@pytest.mark.parametrize("name", options("figure"))
def test_every_figure_builds_its_probe(name):
    """``tests/unit/test_promises.py`` builds every probe."""
    job, model = compose("probe", [f"figure={name}", "task.bits=3"]), untrained(Add(3), num_layers=6)
    model.provenance = Provenance(RandomSplit())
    things = {"task": job.task, "split": job.split, "models": [model]}
    assert isinstance(job.probe.build(Probe, **{need: things[need] for need in job.needs}), Probe)


CLASS_GROUPS = ("task", "split", "loss", "logger", "probe", "model")


@pytest.mark.parametrize("option", [(group, name) for group in CLASS_GROUPS for name in options(group)])
def test_defaults_of_a_class_are_those_of_its_file(option):
    content = load_option(*option)
    arguments = content["net"] if option[0] == "model" else content
    module, _, name = arguments["_target_"].rpartition(".")
    parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    for key in (arguments.keys() & parameters) - {"name"}:
        value, default = arguments[key], parameters[key].default
        if default is not inspect.Parameter.empty and (name, key) != ("Add3", "bits"):  # 7 from Python, as every task
            assert default == (tuple(value) if isinstance(value, list) else value), f"{name}.{key}"


# Sources of classes that lie in no package: those of a script or a notebook

CELL = """
def helper(a, b):
    return a + b + sum(K for _ in range(K))

class Base:
    def answer(self, a, b):
        return helper(a, b)

class Mine(Base):
    name = "mine"

    def __init__(self):
        mine = None

mine = Mine()
K = 0
"""


@pytest.fixture
def digest(monkeypatch):
    def of_notebook(text, file="<cell 1>"):
        """As Python 3.11 in a notebook: the module has no file, functions have the text of their cells."""
        module = ModuleType("notebook")
        monkeypatch.setitem(sys.modules, "notebook", module)
        monkeypatch.setitem(linecache.cache, "<cell 1>", (len(text), None, text.splitlines(keepends=True), "<cell 1>"))
        if isinstance(file, Path):
            file.write_text(text)
            module.__file__ = str(file)
        exec(compile(text, file, "exec"), vars(module))
        trust_modules_of(module.Mine)
        return source_hashes({"task": {"_target_": "notebook.Mine"}})["notebook"]

    return of_notebook


def test_edited_class_of_a_notebook_has_another_hash_and_class_without_source_has_none(digest):
    assert digest(CELL) == digest(CELL)
    assert digest(CELL) != digest(CELL.replace("a + b", "a * b"))
    assert digest(CELL, "<stdin>") == ""


def test_a_number_that_a_class_reads_and_a_second_definition_change_the_hash(digest, tmp_path):
    """Python 3.11 gives the source of the first definition."""
    scripts = (CELL, CELL.replace("K = 0", "K = 1"), CELL + CELL.replace("a + b", "a * b"), CELL + "a = 5\n")
    hashes = [digest(text, tmp_path / f"script{i}.py") for i, text in enumerate(scripts)]
    assert len({*hashes}) == 3
    assert hashes[0] == hashes[3]  # the name is local in the class
