"""The public API: `fit` trains as the command line does, also classes of the caller, and mistakes are explained."""

import json
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from wandb.sdk.lib.exit_hooks import ExitHooks

import arith_erd as ae
from arith_erd import UserError
from arith_erd.bundled import CONF
from arith_erd.probes.logit_lens import LogitLens
from arith_erd.system.cli_errors import line_and_status
from arith_erd.training.fit import group_of_object


def test_importing_loads_neither_torch_nor_hydra():
    code = "import sys, arith_erd; sys.exit(bool({'torch', 'hydra', 'pandas'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_fit_is_the_run_of_the_command_line(tmp_path, capsys):
    """The same directory name, so the same hash; then the same command finds it finished."""
    tiny = ["data.batch_size=16", "model.net.num_layers=1"]
    models = ae.fit(ae.Add(bits=3), ae.NanoGPT, seeds=[4, 6], epochs=2, overrides=tiny, out=tmp_path)
    typed = ["task.bits=3", "model=nanogpt", "seed='4,6'", "trainer.max_epochs=2", *tiny, f"runs_dir={tmp_path}"]
    (run,) = ae.compose("train", typed).runs()
    assert run.finished
    assert [model.seed for model in models] == [4, 6]
    assert models[0].name == run.name
    again = ae.load_run(run.path, seed=6)
    examples = again.task.examples()
    assert torch.equal(again.run(examples), models[1].run(examples))
    capsys.readouterr()
    ae.fit(ae.Add(bits=3), ae.NanoGPT, seeds=[4, 6], epochs=2, overrides=tiny, out=tmp_path)
    assert "skipped" in capsys.readouterr().out


class Largest(ae.Task):
    """``max(a, b)``: a task that the package does not know."""

    name, operator, width = "largest", "m", 3

    def answer(self, a, b):
        return np.maximum(a, b)


class Narrow(ae.NanoGPT):
    """A network that the package does not know."""

    def __init__(self, prompt_length: int, answer_length: int, vocab_size: int = 5) -> None:
        super().__init__(prompt_length, answer_length, d_model=8, num_heads=2, num_layers=1, vocab_size=vocab_size)
        self.scale = torch.nn.Parameter(torch.ones(()))

    def decode(self, *tokens):
        return super().decode(*tokens) * self.scale


class Leaving(ae.NetworkProbe):
    def measure(self, model):
        sys.exit(0)


class Forgetful(ae.Add):
    def __init__(self, wide: int) -> None:
        super().__init__(bits=wide)


class Failing(Narrow):
    """Fails in evaluation, after training has begun."""

    def decode(self, *tokens):
        if not self.training and len(tokens[1]) > 4:
            raise ValueError("not mine")
        return super().decode(*tokens)


class Quarrelsome(ae.Logger):
    """Changes what it is given, and fails in the end."""

    def start(self, name, seeds, config, folder):
        config.clear()

    def log(self, rows):
        rows.clear()

    def finish(self, summaries):
        summaries.clear()
        raise ValueError("no server")


class Changing:
    """A split that holds out one example, but answers with numbers if it is asked about many."""

    def __call__(self, examples):
        return (examples.a == 0) if len(examples) == 2 else (examples.a == 0).astype(int)


class Given(ae.Add):
    """A task with an argument that is an array."""

    def __init__(self, marks) -> None:
        super().__init__(bits=3)
        self.marks = np.array(marks)


class Odd:
    """Holds out the pairs whose first operand is odd, by a list."""

    def __call__(self, examples):
        return (examples.a % 2 == 1).tolist()


def test_classes_of_the_caller_are_trained(tmp_path):
    (model,) = ae.fit(Largest(bits=3), Narrow, epochs=1, split=Odd(), out=tmp_path, overrides=["model.gradient_clip=1"])
    assert model.network.scale != 1
    assert isinstance(model.provenance.split, Odd)
    assert model.predict([3], [5]).shape == (1,)
    ae.save_pretrained(model, tmp_path / "saved")


def test_code_of_the_caller_that_fails_is_named(tmp_path):
    failing, logging = {"model": Failing}, {"overrides": ["logger._target_=tests.unit.test_api.Quarrelsome"]}
    for options, said in (
        (failing, r"failed: evaluation after step 1: tests\.unit\.test_api\.Failing"),
        (logging | {"model": Narrow}, r"failed: finish: .*Quarr"),
    ):
        with pytest.raises(ValueError, match=r"not mine|no server") as failed:
            ae.fit(ae.Add(bits=2), epochs=1, out=tmp_path / options["model"].__name__, **options)
        assert re.match(said, failed.value.__notes__[0])
        assert line_and_status(failed.value)[1] == 1
    with pytest.raises(UserError, match=r"^split: returned int64 of shape \(64,\); expected True or False"):
        ae.fit(ae.Add(bits=3), Narrow, split=Changing(), out=tmp_path)


def test_overrides_as_values_mean_what_is_typed():
    values = {"task": "mul", "seed": "0-4", "trainer.stop_at": None, "trainer.compile": False, "runs_dir": "a,b"}
    values |= {"model.optimizer.lr": np.float32(0.5), "model.optimizer.betas": (np.float64(0.5), 0.98)}
    typed = ["task=mul", "seed='0-4'", "trainer.stop_at=null", "trainer.compile=false", "runs_dir='a,b'"]
    typed += ["model.optimizer.lr=0.5", "model.optimizer.betas=[0.5,0.98]"]
    assert ae.compose("train", values).resolved == ae.compose("train", typed).resolved
    assert ae.compose("train", None).resolved == ae.compose("train").resolved


class Downwards(Largest):
    """Writes the highest digit first, and keeps the names."""

    def completion(self, operands, answer):
        return super().completion(operands, answer)[:, ::-1]


def test_a_task_whose_tokens_have_no_names_is_trained_without_a_mean_error(tmp_path):
    ae.fit(Downwards(bits=3), Narrow, epochs=1, out=tmp_path)
    (summary,) = tmp_path.glob("*/summary.json")
    assert json.loads(summary.read_text())["seeds"][0]["val_mae"] is None


WITH_AN_ARGUMENT = "split.fraction=0.5 task=mul seed=5 runs_dir=x model=gru trainer.max_epochs=2 model.net.d_model=64"


@pytest.mark.parametrize("override", f"{WITH_AN_ARGUMENT} ablation=no_attention scale=mini experiment=fig3".split())
def test_overrides_of_an_argument_are_refused(override):
    model = Narrow if override.startswith(("model.net", "ablation", "scale")) else ae.NanoGPT
    with pytest.raises(UserError, match=f"^fit: overrides: {override}: use an argument of fit"):
        ae.fit(ae.Add(bits=3), model, epochs=1, overrides=[override])


@pytest.mark.parametrize("seeds", [3, np.int64(3), True])
def test_a_number_of_seeds_is_refused_since_it_may_be_one_seed_or_a_count(seeds):
    with pytest.raises(UserError, match=r'^fit: seeds: received .*; expected range\(.*\), "0-2", or \['):
        ae.fit(ae.Add(bits=3), ae.NanoGPT, seeds=seeds, epochs=1)


OTHER_SIZES = [(ae.Add(bits=20), ["data.examples=64"]), (ae.ModAdd(bits=3, modulus=5), [])]


@pytest.mark.parametrize(("task", "options"), OTHER_SIZES)
def test_a_task_of_other_sizes_than_its_file_is_trained(task, options, tmp_path):
    tiny = [*options, "model.net.num_layers=1", "model.net.d_model=8", "model.net.num_heads=2"]
    (model,) = ae.fit(task, ae.NanoGPT, seeds=[np.int64(3)], epochs=1, overrides=tiny, out=tmp_path)
    assert (model.seed, str(model.task)) == (3, str(task))


def test_warnings_name_the_line_that_calls_the_package():
    with pytest.warns(UserWarning, match="constant in all") as warned:
        ae.leace(torch.eye(8), torch.zeros(8))
    assert warned[0].filename == __file__


def test_numpy_numbers_count_as_numbers_of_python():
    x, z = np.random.default_rng(0).standard_normal((2, 60, 3))
    x.flags.writeable = False
    with warnings.catch_warnings(action="error"):  # torch warns of arrays that are for reading only
        eraser = ae.leace(x, z[:, 0])
        flipped = [ae.flip_signs(x[::-1], eraser, seed) for seed in (3, np.int64(3))]
    np.testing.assert_array_equal(*(eraser.left for eraser in flipped))

    def groups(integer, real):
        objects = {"task": ae.ModAdd(integer(3), modulus=integer(7)), "split": ae.RandomSplit(real(0.5), integer(1))}
        return [group_of_object(*item) for item in objects.items()]

    assert str(groups(np.int64, np.float32)) == str(groups(int, float))
    assert ae.load_pretrained("add-nanogpt", seed=np.int64(0)).seed.__class__ is int


LACKS = {
    "amnesic": "probe.site=null: expected all, or some of h, since there is no layer dec.1",
    "attention": "probe=attention: Narrow has no attention; expected a network with attention",
    "certificate": "Narrow: has a Narrow; expected our Transformer or nanoGPT as it is, or num_completions=",
    "distance_correlation": "probe=distance_correlation: site=dec.1: this model has h",
    "encoder_table": "probe=encoder_table: Narrow has no encoder; expected an encoder-decoder",
    "explorer": "explorer: Narrow is a Narrow; expected our Transformer or NanoGPT",
    "logit_lens": "probe=logit_lens: site=dec.1: this model has h",
    "mechanism": "probe=mechanism: site=dec.embed, dec.1: this model has h",
    "subspaces": "probe.site=null: expected all, or some of h, since there is no layer dec.1",
}


@pytest.mark.slow
def test_probes_of_a_network_with_own_sites_give_rows_or_say_what_it_lacks():
    """A hypothesis given as an object has its own variables in the rows, and no others."""
    task, network = ae.Add(bits=3), Narrow(7, 4)
    model = ae.Hooked(network, {"h": network.blocks[0]}, task=task)
    for path in sorted((CONF / "probe").glob("*.yaml")):
        if path.stem in LACKS:
            with pytest.raises(UserError, match=f"^{re.escape(LACKS[path.stem])}"):
                ae.probe(path.stem, model)
        elif "models" in yaml.safe_load(path.read_text())["needs"]:
            assert len(ae.probe(path.stem, model).rows), path.stem
    hypothesis = ae.CausalModel(task, {"sum": lambda a, b: a + b})
    answer = ae.probe("interchange", model, site="h", num_examples=8, causal_model=hypothesis)
    assert "iia_sum" in answer.rows
    assert "iia_carry" not in answer.rows
    assert answer.figure().axes


def test_error_of_an_exit_names_the_users_line_even_if_wandb_wraps_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "exit", sys.exit)  # restored after the test, as is the next one
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    for wrap in (lambda: None, ExitHooks().hook):
        wrap()
        with pytest.raises(UserError, match=r"^test_api\.py, line \d+: SystemExit: 0; expected a result"):
            ae.probe(Leaving, ae.Hooked(ae.NanoGPT(7, 4, num_layers=1), task=ae.Add(bits=3)))


def test_a_probe_of_a_trained_network_gives_rows_and_a_figure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (model,) = ae.fit(ae.Add(bits=3), Narrow, epochs=1)
    answer = ae.probe("logit_lens", model, num_examples=np.int64(16))
    assert set(answer.rows["site"]) == {"dec.1.resid_pre", "dec.1"}
    assert answer.figure().axes
    assert len(answer.table())
    assert len(ae.probe("dataset", task=ae.Add(bits=3)).rows)
    assert ae.probe(LogitLens, model, num_examples=16).rows.equals(answer.rows)
    assert list(tmp_path.iterdir()) == []  # nothing is kept without a folder
    (tmp_path / "lens").mkdir()
    unfinished = [tmp_path / "lens" / f".partial-{name}" for name in ("of_a_killed_process", "of_one_that_writes")]
    for path in unfinished:
        path.touch()
    os.utime(unfinished[0], (0, 0))
    assert answer.save(tmp_path / "lens") == ["rows.csv", "probe.json", "figure.png"]
    assert [path.exists() for path in unfinished] == [False, True]
    assert pd.read_csv(tmp_path / "lens" / "rows.csv").columns.tolist() == list(answer.rows)
    described = json.loads((tmp_path / "lens" / "probe.json").read_text())
    assert (described["name"], described["settings"]["probe"]["num_examples"]) == ("logit_lens", 16)
    alike = [ae.Hooked(model.network, task=Given([1, 2]), seed=seed) for seed in (0, 1)]
    assert set(ae.probe("errors", alike).rows["seed"]) == {0, 1}


MODEL = ae.Hooked(Narrow(7, 4), task=ae.Add(bits=3))
MODULI = [ae.Hooked(Narrow(7, 3), task=ae.ModAdd(3, modulus=m), seed=m) for m in (5, 7)]
ADDER = ae.CausalModel(MODEL.task)
PAIRS = ae.CounterfactualDataset.sample(ADDER, vary="carry", n=8)

LOADING_AND_SAVING = [
    (lambda: ae.load_weights("none", ae.Add(3)), "^path=none: No such file or directory; expected a state"),
    (lambda: ae.load_handcoded("erd", task="add"), "^task: received str; expected Task"),
    (lambda: ae.load_pretrained(3), "^name=3: expected one of"),
    (lambda: ae.load_pretrained("add-nanogtp"), r"^name=add-nanogtp: .*; did you mean add-nanogpt\?$"),
    (lambda: ae.load_pretrained("add-nanogpt", sed=0), r"'sed'; did you mean seed\?$"),
    (lambda: ae.load_run(None), "^path=null: expected a path; "),
    (lambda: ae.load_run("a\0b"), "^path=.*: expected a path; "),
    (lambda: ae.load_run("add-nanogpt"), r"^add-nanogpt: no such folder; load_pretrained\('add-nanogpt'\) loads"),
    (lambda: ae.load_table(3), "^runs=3: expected a path; "),
    (lambda: ae.load_table([]), r"^\[\]: no run there"),
    (lambda: ae.load_weights("none", ae.Add(3), Narrow), "^path=none: No such file or directory; expected a state"),
    (lambda: ae.save_pretrained("saved", MODEL), "^save_pretrained: model: received str; expected Hooked"),
    (lambda: ae.to_hooked_transformer([MODEL]), "^to_hooked_transformer: model: received list; expected Hooked"),
]

TRAINING = [
    (lambda: ae.compose("train", ["--task=add"]), "^--task=add: expected KEY=VALUE, without dashes"),
    (lambda: ae.compose("train", "task=mul"), "^overrides: received 'task=mul'; expected a list of overrides, "),
    (lambda: ae.fit(ae.Add), "fit: task: received the class Add; expected Task"),
    (lambda: ae.fit(bits=2), r"^fit: .*'task'|did you mean bits of your task"),
    (lambda: ae.fit(Forgetful(3)), "task=Forgetful: needs an attribute wide"),
    (lambda: ae.fit(Given([1, 2])), "^task=Given: .*ndarray.*; expected arguments of numbers"),
    (lambda: ae.fit(ae.Add(bits=3), "nanogpt"), "fit: model: received 'nanogpt'"),
    (lambda: ae.fit(ae.Add(3), split=ae.RandomSplit), "^fit: split: received <class .*RandomSplit'>; expected a S"),
    (lambda: ae.fit(ae.Add(bits=3), split=lambda examples: examples.a > 4), "fit: split: received <function"),
    (lambda: ae.fit(ae.Add(bits=3), split="vs_v"), "fit: split: received 'vs_v'; expected a Split, such as"),
    (lambda: ae.fit(ae.Add(3), out=3), "^out=3: expected a path; "),
    (lambda: ae.fit(ae.Add(bits=3), epochs=0), r"trainer\.max_epochs=0"),
    (lambda: ae.fit(ae.Add(bits=3), seeds=None), "^seed=null: expected at most"),
    (lambda: ae.fit(ae.Add(bits=3), seed=2), "did you mean seeds"),
    (lambda: ae.fit(ae.Add(3), overrides={"model.optimizer.lr": print}), "^overrides=a builtin.*: expected num"),
    (lambda: ae.fit(ae.Add(3), lr=1e-3), r"'lr'; did you mean overrides=\{'model\.optimizer\.lr': 0\.001\}\?$"),
    (lambda: ae.fit(ae.Add(bits=3), layers=2), r"did you mean overrides=\{'model\.net\.num_layers': 2\}"),
    (lambda: ae.train("add"), "^train: job: received str; expected Job"),
]

PROBING = [
    (lambda: ae.probe("errors", MODEL, foo=1), "probe.foo: no such key; none is accepted"),
    (lambda: ae.probe("logit_lens", MODEL, n=1), "probe.n: no such key; expected one of probe.num_examples, pro"),
    (lambda: ae.probe("dataset", MODEL), "expected no networks"),
    (lambda: ae.probe("dataset", task="add"), "probe.task=add: expected an object, a Task"),
    (lambda: ae.probe("logit_lens"), "expected one network or more"),
    (lambda: ae.probe("moon", MODEL), "^probe=moon: expected"),
    (lambda: ae.probe(MODEL, "logit_lens"), "received a Hooked; expected the name of a probe"),
    (lambda: ae.probe(LogitLens, MODEL, num_examples=0), "probe.num_examples=0: expected an integer of at least 1"),
    (lambda: ae.probe("logit_lens", MODEL.network), "models: received Narrow; expected Hooked"),
    (lambda: ae.probe("logit_lens", [MODEL, MODEL]), "expected networks of one task and of different seeds"),
    (lambda: ae.probe("logit_lens", MODULI), "expected networks of one task and of different seeds"),
    (lambda: ae.probe("patching", MODEL, site=[]), r"probe\.site=\[\]: expected a name or at least one of them"),
    (lambda: ae.probe("interchange", MODEL, causal_model=ae.CausalModel(ae.Add(bits=4))), r"=Add\(bits=4\)"),
    (lambda: ae.probe("patch", MODEL), r"^probe=patch: .*; did you mean patching\?$"),
]

OTHERS = [
    (lambda: ae.Add(digits=5), r"^Add: got an unexpected keyword argument 'digits'; did you mean bits\?$"),
    (lambda: ae.compare_methods([3]), "^rows: received list; expected DataFrame"),
    (lambda: ae.Erase("dec.1", eraser=None), "^Erase: missing a required argument: 'position'; expected site"),
    (lambda: ae.fit_das(MODEL, ADDER, PAIRS, "dec.1", 0, seed=2**70), "^seed=1180.*: expected an integer from 0"),
    (lambda: ae.flip_signs(torch.eye(3), None, 0), "^eraser: received"),
    (lambda: Largest(bit=5), r"^Task: got an unexpected keyword argument 'bit'; did you mean bits\?$"),
    (lambda: ae.leace(3, 4, 5), "^leace: too many positional arguments; expected x, z$"),
    (lambda: ae.LengthSplit(fraction=0.5), "^LengthSplit: missing a required argument: .trained.; expected"),
    (lambda: MODEL.accuracy([ae.Erase("dec.1", None, abs)]), "^accuracy: received list; expected examples, then"),
    (lambda: MODEL.greedy_tokens(3), "^greedy_tokens: examples: received int; expected Examples"),
    (lambda: ae.NanoGPT(15, 8, layers=2), r"^NanoGPT: .*'layers'; did you mean num_layers\?$"),
    (lambda: ae.score_method(max, 3), "^score_method: networks: received int; expected Label"),
    (lambda: ae.show("add-nanogpt"), "^show: model: received str; expected Hooked"),
]


@pytest.mark.parametrize(("call", "message"), [*LOADING_AND_SAVING, *TRAINING, *PROBING, *OTHERS])
def test_wrong_arguments_are_refused_in_one_line(call, message):
    with pytest.raises(UserError, match=message):
        call()
