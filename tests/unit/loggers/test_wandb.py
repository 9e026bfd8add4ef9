"""Weights & Biases without an account and without a network."""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from unittest.mock import MagicMock

import pandas as pd
import pytest
import wandb
from matplotlib.figure import Figure

from arith_erd.loggers.wandb import Wandb
from arith_erd.runs.directory import METRIC_COLUMNS

KEY = "0" * 40  # of the right shape, and nobody's


def offline_runs(folder: Path) -> list[Path]:
    return sorted(folder.glob("**/offline-run-*/*.wandb"))


def records(path: Path) -> dict[str, list[dict]]:
    """What an offline run holds, by kind, as W&B's own reader prints it."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True)
    by_kind = defaultdict(list)
    for record in map(json.loads, result.stdout.splitlines()):
        by_kind[record["type"]].append(record.get(record["type"], {}))
    return by_kind


def two_epochs(logger: Wandb, folder: Path) -> None:
    logger.start("a-run", (3, 4), {}, folder)
    for epoch in (1, 2):
        logger.log([{"epoch": epoch, "seed": 3, "train_loss": 1.0 / epoch}])
    logger.finish([{"seed": 3, "val_mae": 2.5}])


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """Where W&B keeps its things, and where it finds no key."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("WANDB")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    wandb.teardown()  # else it has read its environment already
    return tmp_path


@pytest.mark.slow
def test_two_seeds_offline(train, home, capsys):
    schedule = ["scheduler=step", "model.scheduler.step_size=1", "model.scheduler.gamma=0.1"]
    run = train("logger=wandb", "logger.artifacts=true", "seed=[0,4]", "model=nanogpt", *schedule)
    assert capsys.readouterr().out.count(f"To upload: wandb sync {run.path}/wandb/offline-run-*") == 1
    for seed, log in zip((0, 4), offline_runs(run.path), strict=True):
        found = records(log)
        (started,) = found["run"]
        assert (started["run_group"], started["display_name"]) == (run.name, f"{run.name}/seed={seed}")
        config = {key: value for key, value in started["config"]["update"].items() if key != "_wandb"}
        assert config == {**run.config(), "seed": seed}
        assert started["tags"] == ["add", "random", "nanogpt", "3 bits"]
        *history, last = (record["item"] for record in found["history"])
        assert last["curves.format"] == "png"
        assert [item["learning_rate"] for item in history] == pytest.approx([1e-3, 1e-4])
        (artifact,) = found["artifact"]
        files = {Path(entry["local_path"]) for entry in artifact["manifest"]["contents"]}
        assert files == {run.weights_file(seed), run.config_file}, "they are read where they lie"
        rows = [row for row in run.metrics() if row["seed"] == seed]
        for item, row in zip(history, rows, strict=True):
            assert {c: item[c] for c in METRIC_COLUMNS if c != "seed"} == pytest.approx(
                {c: row[c] for c in METRIC_COLUMNS if c != "seed"}, rel=1e-6
            )
        summaries = {key: value for record in found["summary"] for key, value in record["update"].items()}
        expected = next(entry for entry in run.summary()["seeds"] if entry["seed"] == seed)
        assert summaries["never_learnt"] == expected.pop("never_learnt")
        assert {key: summaries[key] for key in expected} == pytest.approx(expected)


def no_to_every_key(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(204 if handler.command == "GET" else 401)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "answer", "why"),
    [
        ("", lambda handler: time.sleep(30), "no API key"),  # as firewalls do: accept, and never answer
        (KEY, lambda handler: time.sleep(30), "Error"),
        (KEY, no_to_every_key, "the server refused the API key"),
    ],
)
def test_broken_server_continues_offline(home, monkeypatch, capsys, key, answer, why):
    methods = {f"do_{method}": answer for method in ("GET", "POST", "PUT")} | {"log_message": lambda *_: None}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (BaseHTTPRequestHandler,), methods))
    server.daemon_threads, server.block_on_close = True, False
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.server_address[1]}/401")  # no status
    monkeypatch.setenv("WANDB_API_KEY", key)
    start = time.monotonic()
    two_epochs(Wandb(mode="online", timeout=1), home)
    assert time.monotonic() - start < 25, "with timeout=1, and a machine that is busy"
    (line,) = capsys.readouterr().out.splitlines()
    assert why in line
    assert line.endswith(f"logging offline. To upload later: wandb sync {home}/wandb/offline-run-*")
    log, _ = offline_runs(home)
    assert [record["item"]["epoch"] for record in records(log)["history"]] == [1, 2]
    server.shutdown()


@pytest.mark.parametrize(
    ("environment", "options"),
    [({"WANDB_MODE": "foo"}, {}), ({"WANDB_BASE_URL": "nowhere"}, {}), ({}, {"project": "a/b"})],
    ids=str,
)
def test_what_keeps_wandb_from_starting_is_one_line_and_training_continues(
    monkeypatch, home, capfd, environment, options
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    two_epochs(Wandb(**options), home)
    said = capfd.readouterr()
    (line,) = (said.out + said.err).splitlines()
    assert line.startswith("W&B: ")
    assert line.endswith("; training continues without it")
    assert len(line) < 300


def test_training_continues_when_the_wandb_service_dies(monkeypatch, home, capsys):
    broken = MagicMock()
    broken.log.side_effect = ConnectionResetError("Connection lost")
    broken.finish.side_effect = TimeoutError("not uploaded")
    monkeypatch.setattr(Wandb, "_init", lambda self, *_: broken)
    two_epochs(Wandb(), home)
    assert capsys.readouterr().out.count("logging may be incomplete. To upload what is there: wandb sync") == 1


def test_failed_run_is_marked_failed_and_can_resume(home):
    """Each start of the same seed has the same id, from which W&B knows that it is the same run."""
    for _ in range(2):
        logger = Wandb(project="sums")
        logger.start("a-run", (0, 1), {}, home)
        logger.finish([])
    logs = offline_runs(home)
    assert {log.name for log in logs} == {"run-a-run-of-0.wandb", "run-a-run-of-1.wandb"}
    assert [record["exit_code"] for record in records(logs[0])["exit"]] == [1]
    assert records(logs[0])["run"][0]["project"] == "sums"


def test_probe_rows_and_figure_are_logged(home):
    Figure().savefig(home / "figure.png")
    rows = pd.DataFrame({"layer": [1, 2], "correlation": [0.5, 0.25]})
    Wandb().probe("a-run", 3, "errors", rows, home / "figure.png", home / "a-run")
    (log,) = offline_runs(home / "a-run")
    keys = {key.partition(".")[0] for record in records(log)["history"] for key in record["item"]}
    assert {"errors/rows", "errors/figure"} <= keys
