"""``claims.yaml`` and ``mini.yaml`` hold every claim, which dashboards follow; each run counts once, in any mix."""

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.paper.dashboard import main, probes
from arith_erd.report import collect as sources
from arith_erd.report.claims import evaluate_claims
from arith_erd.report.claims_file import CLAIMS, Paper, load_paper
from arith_erd.report.collect import OUR_RUNS, RunData, collect, unpublished_settings
from arith_erd.report.figures import paper_figures
from arith_erd.report.measures import Metrics
from arith_erd.report.page import summary
from arith_erd.runs.directory import METRIC_COLUMNS
from arith_erd.runs.identity import flat_settings
from arith_erd.tasks import Add, Mul, RandomOutput


@pytest.mark.parametrize("file", ["claims", "mini"])
def test_every_claim_can_be_measured_and_its_own_number_counts_as_reproduced(file: str) -> None:
    paper = load_paper(CLAIMS.with_name(f"{file}.yaml"))
    for claim in paper.claims:
        assert claim.accepted_range[0] - 1e-5 <= claim.value <= claim.accepted_range[1], claim.id
        if isinstance(claim.measure, Metrics):
            assert (claim.measure.epoch is None) != (claim.measure.until is None), claim.id


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


def loaded(folder: Path, claim: dict[str, Any], **more: Any) -> Paper:
    """A claims file of one claim, with other ``more`` at its top."""
    base = {"id": "mine", "statement": "x", "value": 1.0, "unit": "accuracy", "tolerance": 0.1, "measure": MEASURE}
    sections = [{"title": "x", "claims": [base | claim]}]
    (folder / "claims.yaml").write_text(yaml.safe_dump({"title": "x", "sections": sections} | more))
    return load_paper(folder / "claims.yaml", trust=True)


def of_metrics(**options: Any) -> dict[str, Any]:
    return {"measure": MEASURE | {"from": "metrics", "epoch": 1} | options}


def of_runs(**runs: Any) -> dict[str, Any]:
    return {"measure": MEASURE | {"runs": {"task": "add"} | runs}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"value": "1"}, "value=1: Input should be a valid number"),
        ({"value": float("nan")}, "value=nan: Input should be a finite number"),
        ({"tolerance": -1}, "tolerance=-1: Input should be greater than or equal to 0"),
        ({"tolerance": "ten"}, "tolerance=ten: Input should be"),
        (of_metrics(until=50), "expected either measure.epoch or measure.until"),
        (of_metrics(reduce="max"), "expected measure.reduce: max or fall with measure.until"),
        ({"measure": MEASURE | {"over": {"split": "vs_t"}}}, "measure.over: expected from: epochs_to with planned"),
        ({"measure": MEASURE | {"minus": {"split": "vs_t"}}, "mean_of": 5}, "minus, more_than: expected no epochs_to"),
        ({"tolerance": "1.2.3%"}, "tolerance=1.2.3%: Input should be"),
        ({"mean_of": 0}, "mean_of=0: Input should be greater"),
        ({"measure": MEASURE | {"from": "metrics", "epoch": -3}}, "measure.epoch=-3: "),
        ({"measure": MEASURE | {"from": "metrics"}}, "expected either measure.epoch or measure.until"),
        ({"tolerance": None}, "expected a tolerance or a bound"),
        ({"measure": {"from": "guess"}}, "from=guess: expected metrics, summary, epochs_to, probe, or FILE.py:NAME"),
        ({"measure": MEASURE | {"epoc": 5}}, "measure.epoc=5: Extra"),
        ({"measure": MEASURE | {"runs": {}}}, "expected measure.runs: a task"),
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
        ({"measure": MEASURE | {"minus": {"split": "vsv"}}}, "measure.minus.split=vsv: expected length, "),
        ({"measure": MEASURE | {"more_than": {"split": "vsv"}}}, "measure.more_than.split=vsv: expected length, "),
        (
            {"measure": MEASURE | {"from": "epochs_to", "accuracy": 0.9, "planned": 9, "over": {"tsak": 1}}},
            "measure.over=tsak: ",
        ),
        ({"measure": MEASURE | {"column": "val_acc"}}, "measure.column=val_acc: expected a column of numbers: seed, "),
        ({"measure": MEASURE | {"column": "device"}}, "measure.column=device: expected a column of numbers: seed, "),
        (of_metrics(column="val_seq"), "column=val_seq: expected a column of numbers: epoch, "),
        (of_metrics(minus_column="val_seq"), "measure.minus_column=val_seq: expected a column of numbers: epoch, "),
        ({"measure": MEASURE | {"from": "probe", "probe": "dataste"}}, "setup.probe; did you mean dataset?"),
    ],
)
def test_wrong_entry_is_refused_in_one_line(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    """The line has the nearest name; setup lists the models that count, and probes of one's own."""
    top = {
        "commands": {"all": "python train.py"},
        "setup": {"model": {"nanogpt": {}, "mine": {}}, "probe": {"own": {}}},
    }
    curves = {"epochs": {"add": 5}, "lines": [{"label": "x", "style": "first"}]}
    top |= {"figures": {"fig1": {"title": "x", "curves": curves}}}
    with pytest.raises(UserError, match=r"^claims\.yaml: claim mine: ") as refused:
        loaded(tmp_path, change, **top)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
    right = of_runs(model="mine", min_epochs=3)["measure"] | {"from": "probe", "probe": "own-epochs"}
    assert len(loaded(tmp_path, {"make": "all", "figure": "fig1", "measure": right}, **top).claims) == 1


@pytest.mark.parametrize(
    ("top", "says"),
    [
        ({"line": {"style": "bold"}}, "curves.lines.0.style=bold: Input should be 'first', "),
        ({"line": {"column": "accuracy"}}, "curves.lines.0.column=accuracy: Input should be 'epoch', "),
        ({"line": {"runs": {"split": "vs_s"}}}, "curves.lines.runs.split=vs_s: expected length, "),
        (
            {"line": {"claim": "{task}-mind"}},
            "curves.lines.claim=add-mind: expected the id of a claim; did you mean add-mi",
        ),
        ({"epochs": {"ad": 5}}, "curves.lines.runs.task=ad: expected add, "),
        ({"epochs": {"add": "five"}}, "curves.epochs.add=five: Input should be a valid integer"),
        ({"figure": {"make": ["al"]}}, "make=al: expected a name under commands: none"),
        ({"setup": {"taks": {}}}, "setup.taks.[key]=taks: Input should be 'all', 'task', "),
        (
            {"setup": {"all": {"tsk.bits": 7}}},
            "setup.all=tsk.bits: expected a setting's key, such as task.bits; did you",
        ),
        ({"setup": {"task": {"add": {"bits": 7}}}}, "setup.task.add=bits: expected a setting's key, such as task.bits"),
        ({"figure": {"name": "../fig1"}}, "name=../fig1: String should match"),
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
        ("class Gap(Measure):\n  by: int", "measure.by: Field required"),
        ("class Gap(Measure):\n  def value(self, data, replicas):\n    return replicas['x']", "own.py, line 4)"),
    ],
)
def test_wrong_measure_of_ones_own_is_one_line(synthetic, tmp_path: Path, code: str, says: str) -> None:
    (tmp_path / "own.py").write_text(f"from arith_erd.report.measures import Measure\n{code}\n")
    synthetic.run(seeds="0-2")
    with pytest.raises(UserError, match=r"^claims\.yaml: claim mine: ") as refused:
        paper = loaded(tmp_path, {"measure": {"from": "own.py:Gap", "runs": {"task": "add"}}})
        evaluate_claims(paper, collect([synthetic.root], paper.setup))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("measure", [{"where": {"site": "> 3"}}, {"reduce": "weighted", "along": "site"}])
def test_column_of_a_probe_without_numbers_is_refused_in_one_line(synthetic, tmp_path: Path, measure: dict) -> None:
    synthetic.run(seeds="0-2")
    paper = loaded(tmp_path, {"measure": MEASURE | {"from": "probe", "probe": "dose", "column": "x"} | measure})
    data = collect([synthetic.root], paper.setup)
    rows = pd.DataFrame({"replica": data.replicas.index, "site": "dec.1", "x": 0.5, "source": OUR_RUNS, "task": "add"})
    data.probes["dose"] = rows.assign(unpublished_settings="")
    key = [*measure][-1]
    with pytest.raises(
        UserError, match=rf"^claims\.yaml: claim mine: measure\.{key}=site: expected a column of numbers"
    ):
        evaluate_claims(paper, data)


def test_figure_of_ones_own_that_raises_is_one_line(synthetic, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def draw(data, results):\n    raise ValueError('no data')\n")
    paper = loaded(tmp_path, {}, figures={"one": {"title": "x", "draw": "own.py:draw"}})
    with pytest.raises(UserError, match=r"^claims\.yaml: figures\.one\.draw: ValueError: no data \(.*, line 2\)$"):
        list(paper_figures(paper, collect([synthetic.root], paper.setup), []))


def test_settings_that_are_pooled_are_named(synthetic, tmp_path: Path) -> None:
    paper = loaded(tmp_path, {})
    synthetic.run(seeds="0-2")
    data = collect([synthetic.root], paper.setup)
    (result,) = evaluate_claims(paper, data)
    assert "averaged over" not in result.cause
    data.replicas.loc[data.replicas.index[0], ["trajectory", "run"]] = ["another", "its-name"]
    (result,) = evaluate_claims(paper, data)
    assert "averaged over runs with other settings: " in result.cause
    assert "its-name" in result.cause
    assert summary([result]).count(".") == 1


def test_runs_of_one_name_in_two_folders_are_both_read(synthetic, tmp_path) -> None:
    first, second = synthetic.run(seeds="0"), synthetic.run(seeds="1")
    (tmp_path / "other").mkdir()
    second.path.rename(tmp_path / "other" / first.name)
    data = collect([synthetic.root, tmp_path / "other"], load_paper().setup)
    assert sorted(data.replicas["seed"]) == [0, 1]


@pytest.mark.parametrize("base", [2, 3])
def test_a_setting_that_came_later_has_its_first_value_in_old_runs(synthetic, base: int) -> None:
    synthetic.run(seeds="0")
    data = collect([synthetic.root], {"all": {"task.base": base, "model.net.positions": "sinusoidal"}})
    assert data.replicas["unpublished_settings"].tolist() == ["" if base == 2 else "task.base=2"]


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
    (result,) = evaluate_claims(paper, collect([synthetic.root], paper.setup))
    assert result.votes in ({1: 1}, {5: 1})  # not 3, their mean


@pytest.mark.parametrize("text", ["", "title: x", "sections: {", "sections: [{claims: []}]", "[]", "sections: [3]"])
def test_file_without_claims_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "claims.yaml").write_text(text)
    with pytest.raises(UserError, match="expected a claims file: a title, and sections with claims"):
        load_paper(tmp_path / "claims.yaml")


def panels(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, dict):
        mine = [node] if "viewType" in node else []
        return mine + [panel for value in node.values() for panel in panels(value)]
    return [panel for item in node for panel in panels(item)] if isinstance(node, list) else []


def test_panels_name_what_is_logged_and_the_report_has_the_papers_figures(monkeypatch, capsys) -> None:
    """No connection is made."""
    monkeypatch.setattr(socket.socket, "connect", None)
    main(["--entity", "team", "--project", "sums", "--dry-run"])
    dry_run = json.loads(capsys.readouterr().out)
    known = {*METRIC_COLUMNS, "summary:epochs_to_95", "summary_metrics.epochs_to_95"}
    media = {f"{probe}/figure" for probe in probes()}
    found = panels(dry_run)
    assert len(found) > 20
    for panel in found:
        config = panel["config"]
        assert set(config.get("metrics") or []) <= known
        assert set(config.get("mediaKeys") or []) <= media
        if panel["viewType"] == "Run History Line Plot":
            assert (config["xAxis"], config["groupAgg"], config["groupArea"]) == ("epoch", "mean", "minmax")
    paper, text = load_paper(), json.dumps(dry_run["report"]["spec"]["blocks"], ensure_ascii=False)
    assert all(figure.caption in text for figure in paper.figures if figure.name != "appendixA")  # which no run makes
    assert "93.7%" in text  # of VS_v


def test_saving_without_login_is_one_line(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(SystemExit, match="1"):
        main(["--entity", "team", "--project", "sums"])
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("error: --entity=team --project=sums: not saved (")


def read(runs) -> RunData:
    return collect([runs.root], load_paper().setup)


def test_finished_copy_of_a_replica_in_two_packs_is_preferred(synthetic) -> None:
    unfinished = synthetic.run(seeds="0-4", epochs=25, finished=False)
    finished = synthetic.run(seeds="0", epochs=50)
    assert unfinished.name != finished.name
    found = read(synthetic)
    assert sorted(found.replicas["seed"]) == [*range(5)]
    seed = found.replicas[found.replicas["seed"] == 0]
    assert seed["run"].tolist() == [finished.name]
    assert (~found.replicas["finished"]).sum() == 4


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("config.yaml", "seed: 0\n", "config.yaml: not that of a run"),
        ("metrics.csv", None, "summary.json: not that of a finished run (metrics.csv does not hold"),
        ("summary.json", '{"seeds": [{"seed": 0, "val_mae": "none"}]}', "summary.json"),
    ],
)
def test_damaged_run_is_named_and_the_others_count(synthetic, tmp_path, name: str, text: str | None, says: str) -> None:
    good = synthetic.run(seeds="0")
    bad = synthetic.run("task=mul", seeds="0")
    whole = shutil.copytree(synthetic.root, tmp_path / "copy")
    (bad.path / name).unlink()
    if text is not None:
        (bad.path / name).write_text(text)
    found = read(synthetic)
    assert list(found.problems) == [bad.name]
    assert says in found.problems[bad.name]
    assert "\n" not in found.problems[bad.name]
    assert found.replicas.loc[found.replicas["finished"], "run"].tolist() == [good.name]
    assert bad.name not in collect([synthetic.root, whole], load_paper().setup).problems or name != "config.yaml"


def test_probes_of_runs_of_tasks_and_of_given_weights_stay_apart(synthetic, tmp_path) -> None:
    run = synthetic.run(seeds="0-1")
    first = shutil.copytree(synthetic.measured(run.path, (0, 1)).parent, run.path / "probes" / "a") / "probe.json"
    path = synthetic.measured(synthetic.root, (0,), "distance_correlation-add").with_name("probe.json")
    synthetic.discontinuity("mul").with_name("figure.png").touch()
    synthetic.probe(synthetic.root, "dataset-mul", pd.DataFrame({"prompt": ["0000011"], "answer": [0]}))
    found = read(synthetic)
    both = collect([synthetic.root, shutil.copytree(synthetic.root, tmp_path / "copy")], load_paper().setup)
    assert both.pictures == found.pictures
    assert all(both.probes[name].equals(rows) for name, rows in found.probes.items())
    rows = found.probes["distance_correlation"]
    replicas = {sources.OUR_RUNS: [0, 1], sources.AUTHORS_WEIGHTS: [-1]}
    assert rows.groupby("source")["replica"].unique().map(list).to_dict() == replicas
    assert set(rows["task"]) == {"add"}
    assert found.probes["dataset"]["prompt"].tolist() == ["0000011"]  # text, leading zeros and all
    assert set(found.probes["discontinuity"]["task"]) == {"mul"}
    schema = json.loads(path.read_text())
    schema["settings"]["weights"] = {"handcoded": "erd", "seeds": "0"}
    path.write_text(json.dumps(schema))
    shutil.copy(path, first)
    rows = read(synthetic).probes["distance_correlation"]
    assert set(rows.loc[rows["replica"] < 0, "source"]) == {sources.OTHER_WEIGHTS}  # not the authors'
    assert set(rows.loc[rows["replica"] < 0, "unpublished_settings"]) == {"handcoded=erd, seeds=0"}
    assert set(rows.loc[rows["replica"] >= 0, "unpublished_settings"]) == {"", "handcoded=erd, seeds=0"}


@pytest.mark.parametrize("text", [None, '{"name": "x", "columns": {"nowhere": "text"}}'])
def test_probe_without_a_readable_table_or_description_is_named(synthetic, text: str | None) -> None:
    run = synthetic.run(seeds="0")
    synthetic.probe(run.path, "amnesic", pd.DataFrame({"site": ["dec.3"]}))
    description = synthetic.measured(run.path, (0,)).with_name("probe.json")
    description.unlink()
    if text is not None:
        description.write_text(text)
    found = read(synthetic)
    names = ("amnesic", "distance_correlation")
    assert sorted(found.problems) == [f"{run.name}/probes/{name}/rows.csv" for name in names]
    assert found.probes == {}


def test_set_up_is_the_papers(root: Path) -> None:
    """Tokens of every task; of trained Transformers also those seen, and operations. Others test parameters."""
    for task, answer in ((Add(7), 8), (Mul(7), 14), (RandomOutput(7), 8)):
        examples = task.examples()
        assert (len(examples), examples.prompt.shape[1], examples.completion.shape[1]) == (2**14, 15, answer)
    runs = pd.read_csv(root / "paper" / "results" / "runs.csv").query("model == 'transformer' and split == 'random'")
    for name, epochs, tokens, operations in (("add", 50, 14e6, 59e12), ("mul", 250, 89e6, 374e12)):
        trained = runs[(runs["task"] == name) & (runs["epochs"] == epochs) & (runs["params"] == 701_381)]
        assert len(trained)
        assert trained["train_tokens"].to_list() == pytest.approx([tokens] * len(trained), rel=0.01)
        assert trained["train_flops"].to_list() == pytest.approx([operations] * len(trained), rel=0.01)
