"""The W&B dashboards, without W&B: the dry run is what it was, names what is logged, and asks no network."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from arith_erd.report.dashboard import main, probes
from arith_erd.report.paper import load_paper
from arith_erd.runs import METRICS

GOLDEN = Path(__file__).with_name("dashboard.json")
VOLATILE = {"__id__", "id"}
DEFAULTS = {  # of the library, the same everywhere
    *("runFeed", "flowConfig", "localPanelSettings", "sort", "selections", "expandedRowAddresses", "customRunColors"),
    *("search", "enabled", "openViz", "openRunSet", "hideRunSets", "views", "tabs", "panelSettings", "authors"),
    *("discussionThreads", "filterFormat", "disabled", "sorted", "pinned", "type", "state", "settings"),
}


def meaning(node: Any) -> Any:
    """Without ids drawn at random and without what the library always writes."""
    if isinstance(node, dict):
        kept = {key: meaning(value) for key, value in node.items() if key not in VOLATILE | DEFAULTS}
        return {key: value for key, value in kept.items() if value not in ({}, [])}
    return [meaning(item) for item in node] if isinstance(node, list) else node


def written(node: Any, indent: int = 0) -> str:
    """JSON in which whatever fits on a line stands on one."""
    line = json.dumps(node)
    if len(line) + indent < 100 or not isinstance(node, dict | list):
        return line
    entries = [f"{json.dumps(key)}: " for key in node] if isinstance(node, dict) else [""] * len(node)
    values = node.values() if isinstance(node, dict) else node
    pad = "\n" + " " * (indent + 1)
    body = ("," + pad).join(key + written(value, indent + 1) for key, value in zip(entries, values, strict=True))
    opening, closing = "{}" if isinstance(node, dict) else "[]"
    return opening + pad + body + pad[:-1] + closing


@pytest.fixture(scope="module")
def dry_run() -> dict[str, Any]:
    """What ``--dry-run`` prints, where every connection fails."""
    patch, capture = pytest.MonkeyPatch(), []

    def no_network(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the dry run asked the network")

    patch.setattr(socket.socket, "connect", no_network)
    patch.delenv("WANDB_API_KEY", raising=False)
    patch.setattr("builtins.print", lambda text, **_: capture.append(text))
    main(["--entity", "team", "--project", "sums", "--dry-run"])
    patch.undo()
    return json.loads(capture[0])


def test_dry_run_equals_the_golden_one(dry_run) -> None:
    """``UPDATE_GOLDEN=1 pytest tests/unit/report/test_dashboard.py`` writes it anew: read the difference."""
    found = meaning(dry_run)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(written(found) + "\n")
    assert found == json.loads(GOLDEN.read_text())


def panels(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, dict):
        mine = [node] if "viewType" in node else []
        return mine + [panel for value in node.values() for panel in panels(value)]
    return [panel for item in node for panel in panels(item)] if isinstance(node, list) else []


def test_panels_name_what_is_logged(dry_run) -> None:
    summary = {"epochs_to_95", "val_mae", "val_token_acc_autoregressive"}
    known = {*METRICS, *(f"summary_metrics.{name}" for name in summary), *(f"summary:{name}" for name in summary)}
    media = {f"{probe}/figure" for probe in probes()}
    found = panels(dry_run)
    assert len(found) > 20
    for panel in found:
        config = panel["config"]
        assert set(config.get("metrics", [])) <= known
        assert set(config.get("mediaKeys", [])) <= media
        if panel["viewType"] == "Run History Line Plot":
            assert config["xAxis"] == "epoch"
            assert (config["groupAgg"], config["groupArea"], config["aggregate"]) == ("mean", "minmax", True)


def test_workspace_has_its_sections_and_groups(dry_run) -> None:
    section = dry_run["workspace"]["spec"]["section"]
    names = [part["name"] for part in section["panelBankConfig"]["sections"]]
    assert names == ["Sequence accuracy", "Token accuracy", "Loss", "Probes", "Final numbers"]
    keys = [key["name"] for key in section["runSets"][0]["grouping"]]
    assert keys == ["task.value.name", "split.value.name", "model.value.name", "ablation.value.name"]


def test_report_has_the_papers_figures(dry_run) -> None:
    blocks = dry_run["report"]["spec"]["blocks"]
    headings = [block["children"][0]["text"] for block in blocks if block["type"] == "heading"]
    starts = ("Figure 1", "Figure 2", "Figure 3", "Figure E.8", "Figure 4", "Table 3", "Figure C.6", "Appendix D")
    for start in (*starts, "Figure E.7"):
        assert any(heading.startswith(start) for heading in headings)
    assert sum(block["type"] == "panel-grid" for block in blocks) == len(headings)


def test_captions_and_numbers_are_those_of_paper_yaml(dry_run) -> None:
    text = json.dumps(dry_run["report"]["spec"]["blocks"], ensure_ascii=False)
    paper = load_paper()
    for figure in paper.figures:
        assert (figure.caption in text) == (figure.name != "appendixA")  # whose rows come from no run
    assert paper["fig3-add-vs_v"].text in text
    assert paper["appD-after"].text in text


def test_runs_of_a_figure_are_grouped_by_what_its_claims_compare(dry_run) -> None:
    grids = [block for block in dry_run["report"]["spec"]["blocks"] if block["type"] == "panel-grid"]
    groups = [[key["name"] for key in runs["grouping"]] for grid in grids for runs in grid["metadata"]["runSets"]]
    assert ["split.value.name"] in groups
    assert ["ablation.value.name"] in groups


def test_saving_without_login_is_refused(monkeypatch, tmp_path: Path, capsys) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(SystemExit) as left:
        main(["--entity", "team", "--project", "sums"])
    assert left.value.code == 1
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("error: --entity=team --project=sums: not saved (")
