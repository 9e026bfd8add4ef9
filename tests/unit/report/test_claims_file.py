"""``claims.yaml`` and ``mini.yaml`` hold every claim; a wrong claims file is refused in one line."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.report.claims import evaluate_claims
from arith_erd.report.claims_file import CLAIMS, Paper, load_paper
from arith_erd.report.collect import OUR_RUNS, unpublished_settings
from arith_erd.report.figures import paper_figures
from arith_erd.report.page import summary
from arith_erd.runs.identity import flat_settings
from arith_erd.tasks import Add, Mul, RandomOutput


@pytest.mark.parametrize("file", ["claims", "mini"])
def test_the_papers_own_claims_files_are_accepted(file: str) -> None:
    assert load_paper(CLAIMS.with_name(f"{file}.yaml")).claims


@pytest.mark.parametrize(
    ("key", "value"), [("task.bits", 5), ("model.gradient_clip", 1.0), ("task._target_", "arith_erd.tasks.Add")]
)
def test_setting_that_departs_from_the_paper_is_named(key: str, value: object) -> None:
    given = flat_settings(compose("train", ["task=mul"]).resolved)
    assert unpublished_settings(given, load_paper().setup) == []
    assert unpublished_settings(given | {key: value}, load_paper().setup) == [f"{key}={value}"]


def test_printed_command_names_the_folder_that_was_read() -> None:
    paper = load_paper()
    assert paper.command("fig3", Path("runs")) == "python train.py -m experiment=fig3"
    assert paper.command("fig3", Path("/data/my runs")).endswith(" runs_dir='/data/my runs'")
    assert paper.command("fig4_mul", Path("elsewhere")).endswith(" run='elsewhere/mul-random-transformer-none-*'")


MEASURE = {"from": "summary", "column": "val_seq_acc", "runs": {"task": "add"}}
EPOCHS_TO = {"from": "epochs_to", "accuracy": 0.9, "planned": 9}


def loaded(folder: Path, claim: dict[str, Any], **more: Any) -> Paper:
    """A claims file of one claim, with other ``more`` at its top."""
    base = {"id": "mine", "statement": "x", "value": 1.0, "unit": "accuracy", "tolerance": 0.1, "measure": MEASURE}
    sections = [{"title": "x", "claims": [base | claim]}]
    (folder / "claims.yaml").write_text(yaml.safe_dump({"title": "x", "sections": sections} | more))
    return load_paper(folder / "claims.yaml", trust=True)


def measuring(**options: Any) -> dict[str, Any]:
    return {"measure": MEASURE | options}


def of_metrics(**options: Any) -> dict[str, Any]:
    return measuring(**{"from": "metrics", "epoch": 1} | options)


def of_runs(**runs: Any) -> dict[str, Any]:
    return measuring(runs={"task": "add"} | runs)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"value": "1"}, "value='1': expected a valid number"),
        ({"value": float("nan")}, "value=nan: expected a finite number"),
        ({"tolerance": -1}, "tolerance=-1: expected a number of at least 0, or a percentage such as 5%"),
        ({"tolerance": "ten"}, "tolerance=ten: expected a number of at least 0"),
        (of_metrics(until=50), "expected either measure.epoch or measure.until"),
        (of_metrics(reduce="max"), "expected measure.reduce: max or fall with measure.until"),
        (measuring(over={"split": "vs_t"}), "measure.over: expected from: epochs_to with planned"),
        (measuring(minus={"split": "vs_t"}) | {"mean_of": 5}, "minus, more_than: expected no epochs_to"),
        ({"tolerance": "1.2.3%"}, "tolerance=1.2.3%: expected a number of at least 0"),
        ({"mean_of": 0}, "mean_of=0: expected an integer of at least 1"),
        ({"tolerance": {"a": 1}}, "mine: tolerance={'a': 1}: expected a number of at least 0"),
        ({"sectoin": 1}, "sectoin: no such key; expected "),
        (of_metrics(epoch=-3), "measure.epoch=-3: "),
        (of_metrics(epoch=None), "expected either measure.epoch or measure.until"),
        ({"tolerance": None}, "expected a tolerance or a bound"),
        ({"measure": {"from": "guess"}}, "from=guess: expected metrics, summary, epochs_to, probe, or FILE.py:NAME"),
        (measuring(epoc=5), "measure.epoc: no such key; did you mean measure.epoch?"),
        (measuring(runs={}), "expected measure.runs: a task"),
        ({"make": "nothing"}, "make=nothing: expected a name under commands: all"),
        ({"same_as": "mine"}, "same_as=mine: expected a claim that is counted itself"),
        ({"figure": "fig2"}, "figure=fig2: expected a name under figures; did you mean fig1?"),
        (of_runs(task="addd"), "measure.runs.task=addd: expected add, add3, add_scratchpad, mod_add, mul, "),
        (of_runs(task="addd"), ", or a name under setup.task; did you mean add?"),
        (of_runs(model="nano"), "measure.runs.model=nano: expected mine, nanogpt, or a name under setup.model"),
        (of_runs(split="vs_x"), "measure.runs.split=vs_x: expected length, random, vs_t, vs_v, or a name"),
        (of_runs(ablation=["none"]), "measure.runs.ablation=['none']: expected "),
        (of_runs(completion_order="Plain"), "completion_order=Plain: expected one of reverse, plain; did you mean pl"),
        (of_runs(modell="nanogpt"), "measure.runs=modell: expected one of task, split, "),
        (of_runs(min_epochs="50"), "measure.runs.min_epochs='50': expected an integer of at least 0"),
        (measuring(minus={"split": "vsv"}), "measure.minus.split=vsv: expected length, "),
        (measuring(more_than={"split": "vsv"}), "measure.more_than.split=vsv: expected length, "),
        (measuring(**EPOCHS_TO, over={"tsak": 1}), "measure.over=tsak: "),
        (measuring(column="val_acc"), "measure.column=val_acc: expected a column of numbers: seed, "),
        (measuring(column="device"), "measure.column=device: expected a column of numbers: seed, "),
        (of_metrics(column="val_seq"), "column=val_seq: expected a column of numbers: epoch, "),
        (of_metrics(minus_column="val_seq"), "measure.minus_column=val_seq: expected a column of numbers: epoch, "),
        (measuring(**{"from": "probe"}, probe="dataste"), "setup.probe; did you mean dataset?"),
    ],
)
def test_wrong_entry_is_refused_in_one_line(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    """The line has the nearest name; setup lists the models that count, and the user's own probes."""
    curves = {"epochs": {"add": 5}, "lines": [{"label": "x", "style": "first"}]}
    top = {"commands": {"all": "python train.py"}, "figures": {"fig1": {"title": "x", "curves": curves}}}
    top["setup"] = {"model": {"nanogpt": {}, "mine": {}}, "probe": {"own": {}}}
    with pytest.raises(UserError, match=r"^claims\.yaml: claim mine: ") as refused:
        loaded(tmp_path, change, **top)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
    right = of_runs(model="mine", min_epochs=3)["measure"] | {"from": "probe", "probe": "own-epochs"}
    assert len(loaded(tmp_path, {"make": "all", "figure": "fig1", "measure": right}, **top).claims) == 1


@pytest.mark.parametrize(
    ("top", "says"),
    [
        ({"line": {"style": "bold"}}, "curves.lines.0.style=bold: expected first, "),
        ({"line": {"colum": "seed"}}, "lines.0.colum: no such key; did you mean figures.fig1.curves.lines.0.column?"),
        ({"line": {"column": "accuracy"}}, "curves.lines.0.column=accuracy: expected epoch, "),
        ({"line": {"runs": {"split": "vs_s"}}}, "curves.lines.runs.split=vs_s: expected length, "),
        ({"line": {"claim": "{task}-mind"}}, "claim=add-mind: expected the id of a claim; did you mean add-mine?"),
        ({"epochs": {"ad": 5}}, "curves.lines.runs.task=ad: expected add, "),
        ({"epochs": {"add": "five"}}, "curves.epochs.add=five: expected an integer"),
        ({"figure": {"make": [3]}}, "figures.fig1.make.0=3: expected a name"),
        ({"figure": {"make": ["al"]}}, "make=al: expected a name under commands: none"),
        ({"setup": {"taks": {}}}, "setup.taks: no such key; expected all, task, "),
        ({"setup": {"all": {"tsk.bits": 7}}}, "setup.all=tsk.bits: expected a setting's key, such as task.bits; did"),
        ({"setup": {"task": {"add": {"bits": 7}}}}, "setup.task.add=bits: expected a setting's key, such as task.bits"),
        ({"figure": {"name": "../fig1"}}, "name=../fig1: expected text that matches "),
    ],
)
def test_wrong_figure_or_setup_is_refused_in_one_line(tmp_path: Path, top: dict[str, Any], says: str) -> None:
    lines = [{"label": "x", "style": "first", "claim": "{task}-mine"} | top.pop("line", {})]
    curves = {"lines": lines, "epochs": top.pop("epochs", {"add": 5})}
    figures = {"fig1": {"title": "x", "curves": curves} | top.pop("figure", {})}
    with pytest.raises(UserError, match=r"^claims\.yaml: (figures\.|setup)") as refused:
        loaded(tmp_path, {"id": "add-mine"}, figures=figures, **top)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("Gap = 1", "Gap: expected a subclass of arith_erd.report.measures.Measure"),
        ("import nowhere", "No module named 'nowhere'"),
        ("raise SystemExit", "expected a result, or an error"),
        ("", "has no attribute 'Gap'; expected a Python file that can be imported, and has Gap"),
        ("class Gap(Measure):\n  by: int", "measure.by: missing; expected a value"),
        ("class Gap(Measure):\n  def value(self, data, replicas):\n    return replicas['x']", "own.py, line 4)"),
    ],
)
def test_wrong_own_measure_is_one_line(synthetic, tmp_path: Path, code: str, says: str) -> None:
    (tmp_path / "own.py").write_text(f"from arith_erd.report.measures import Measure\n{code}\n")
    synthetic.run(seeds="0-2")
    with pytest.raises(UserError, match=r"^claims\.yaml: claim mine: ") as refused:
        paper = loaded(tmp_path, {"measure": {"from": "own.py:Gap", "runs": {"task": "add"}}})
        evaluate_claims(paper, synthetic.data(paper=paper))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("measure", [{"where": {"site": "> 3"}}, {"reduce": "weighted", "along": "site"}])
def test_column_of_a_probe_without_numbers_is_refused_in_one_line(synthetic, tmp_path: Path, measure: dict) -> None:
    synthetic.run(seeds="0-2")
    paper = loaded(tmp_path, measuring(**{"from": "probe", "probe": "dose", "column": "x"} | measure))
    data = synthetic.data(paper=paper)
    rows = pd.DataFrame({"replica": data.replicas.index, "site": "dec.1", "x": 0.5, "source": OUR_RUNS, "task": "add"})
    data.probes["dose"] = rows.assign(unpublished_settings="")
    key = [*measure][-1]
    with pytest.raises(UserError, match=rf"^claims\.yaml: claim mine: measure\.{key}=site: expected a column of num"):
        evaluate_claims(paper, data)


def test_own_figure_that_raises_is_one_line(synthetic, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def draw(data, results):\n    raise ValueError('no data')\n")
    paper = loaded(tmp_path, {}, figures={"one": {"title": "x", "draw": "own.py:draw"}})
    with pytest.raises(UserError, match=r"^claims\.yaml: figures\.one\.draw: ValueError: no data \(.*, line 2\)$"):
        list(paper_figures(paper, synthetic.data(paper=paper), []))


def test_settings_that_are_pooled_are_named(synthetic, tmp_path: Path) -> None:
    paper = loaded(tmp_path, {})
    synthetic.run(seeds="0-2")
    data = synthetic.data(paper=paper)
    (result,) = evaluate_claims(paper, data)
    assert "averaged over" not in result.cause
    data.replicas.loc[data.replicas.index[0], ["trajectory_hash", "run"]] = ["another", "its-name"]
    (result,) = evaluate_claims(paper, data)
    assert "averaged over runs with other settings: " in result.cause
    assert "its-name" in result.cause
    assert summary([result]).count(".") == 1


def test_braces_in_a_command_are_text(tmp_path: Path) -> None:
    paper = loaded(tmp_path, {"make": "all"}, commands={"all": "python train.py loss.variables={carry:1} x={runs}"})
    assert paper.command("all", Path("mine")) == "python train.py loss.variables={carry:1} x=mine"


def test_a_seed_votes_for_a_layer_that_one_of_its_runs_names(synthetic, tmp_path: Path) -> None:
    for peak, batch_size in ((1, 128), (5, 64)):
        run = synthetic.run(f"data.batch_size={batch_size}", seeds="0")
        rows = pd.DataFrame({"seed": 0, "layer": range(1, 7), "correlation": 0.1})
        synthetic.probe(run.path, "logit_lens", rows.assign(correlation=(rows["layer"] == peak) * 0.5))
    measure = {"from": "probe", "probe": "logit_lens", "column": "correlation", "reduce": "argmax", "along": "layer"}
    options = {"measure": measure | {"runs": {"task": "add"}}, "unit": "layer"}
    paper = loaded(tmp_path, options)
    (result,) = evaluate_claims(paper, synthetic.data(paper=paper))
    assert result.votes in ({1: 1}, {5: 1})  # not 3, their mean


@pytest.mark.parametrize("text", ["", "title: x", "sections: {", "sections: [{claims: []}]", "[]", "sections: [3]"])
def test_file_without_claims_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "claims.yaml").write_text(text)
    with pytest.raises(UserError, match="expected a claims file: a title, and sections with claims"):
        load_paper(tmp_path / "claims.yaml")


def test_setup_is_that_of_the_paper(root: Path) -> None:
    """Numbers of tokens, and for trained Transformers those seen and the operations. Other tests count parameters."""
    for task, answer in ((Add(7), 8), (Mul(7), 14), (RandomOutput(7), 8)):
        examples = task.examples()
        assert (len(examples), examples.prompt.shape[1], examples.completion.shape[1]) == (2**14, 15, answer)
    runs = pd.read_csv(root / "paper" / "results" / "runs.csv").query("model == 'transformer' and split == 'random'")
    for name, epochs, tokens, operations in (("add", 50, 14e6, 59e12), ("mul", 250, 89e6, 374e12)):
        trained = runs[(runs["task"] == name) & (runs["epochs"] == epochs) & (runs["params"] == 701_381)]
        assert len(trained)
        assert trained["train_tokens"].to_list() == pytest.approx([tokens] * len(trained), rel=0.01)
        assert trained["train_flops"].to_list() == pytest.approx([operations] * len(trained), rel=0.01)
