"""Dashboards follow the claims file, and show what runs log."""

import json
import runpy
import socket
import sys
from typing import Any

import pytest

from arith_erd.paper import dashboard
from arith_erd.paper.dashboard import main, probes
from arith_erd.report.claims_file import load_paper
from arith_erd.runs.directory import METRIC_COLUMNS


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


def test_without_the_extra_it_says_how_to_install_it(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
    with pytest.raises(SystemExit, match="1"):
        runpy.run_path(dashboard.__file__)
    message = capsys.readouterr().err
    assert message.startswith("error: wandb_workspaces: ModuleNotFoundError: ")
    assert message.endswith("; pip install 'arith_erd[dashboard]'\n")
