"""The W&B dashboards, without W&B: they follow from paper.yaml, name what is logged, and ask no network."""

import json
import socket
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest

from arith_erd.report.dashboard import main, probes
from arith_erd.report.paper import load_paper
from arith_erd.runs import METRICS


@pytest.fixture(scope="module")
def dry_run() -> dict[str, Any]:
    """What ``--dry-run`` prints, where there is no network."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        patch.setattr(socket.socket, "connect", None)
        patch.delenv("WANDB_API_KEY", raising=False)
        main(["--entity", "team", "--project", "sums", "--dry-run"])
    return json.loads(printed.getvalue())


def panels(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, dict):
        mine = [node] if "viewType" in node else []
        return mine + [panel for value in node.values() for panel in panels(value)]
    return [panel for item in node for panel in panels(item)] if isinstance(node, list) else []


def test_panels_name_what_is_logged(dry_run) -> None:
    known = {*METRICS, "summary:epochs_to_95", "summary_metrics.epochs_to_95"}
    media = {f"{probe}/figure" for probe in probes()}
    found = panels(dry_run)
    assert len(found) > 20
    for panel in found:
        config = panel["config"]
        assert set(config.get("metrics") or []) <= known
        assert set(config.get("mediaKeys") or []) <= media
        if panel["viewType"] == "Run History Line Plot":
            assert config["xAxis"] == "epoch"
            assert (config["groupAgg"], config["groupArea"], config["aggregate"]) == ("mean", "minmax", True)


def test_report_has_the_papers_figures_with_their_captions_numbers_and_runs(dry_run) -> None:
    blocks = dry_run["report"]["spec"]["blocks"]
    headings = [block["children"][0]["text"] for block in blocks if block["type"] == "heading"]
    paper, text = load_paper(), json.dumps(blocks, ensure_ascii=False)
    of_runs = [figure for figure in paper.figures if figure.name != "appendixA"]  # whose rows come from no run
    assert headings == [figure.title for figure in of_runs]
    assert all(figure.caption in text for figure in of_runs)
    assert paper["fig3-add-vs_v"].text in text
    grids = [block for block in blocks if block["type"] == "panel-grid"]
    assert len(grids) == len(headings)
    groups = [[key["name"] for key in runs["grouping"]] for grid in grids for runs in grid["metadata"]["runSets"]]
    assert ["split.value.name"] in groups
    assert ["ablation.value.name"] in groups


def test_saving_without_login_is_one_line(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(SystemExit, match="1"):
        main(["--entity", "team", "--project", "sums"])
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("error: --entity=team --project=sums: not saved (")
