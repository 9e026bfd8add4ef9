"""Weights & Biases without an account or internet."""

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

from arith_erd import UserError, compose
from arith_erd.loggers.wandb import Wandb
from arith_erd.runs.directory import METRIC_COLUMNS
from arith_erd.training.callbacks import MetricsWriter
from tests.behaviour.interruption import power_cut

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
    """A home folder for the files of W&B, without an API key."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("WANDB")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    wandb.teardown()  # else it has read its environment already
    return tmp_path


@pytest.mark.slow
def test_each_seed_is_a_run_of_wandb_with_its_rows_settings_and_weights(train, home, capsys):
    schedule = ["scheduler=step", "model.scheduler.step_size=1", "model.scheduler.gamma=0.1"]
    run = train("logger=wandb", "logger.artifacts=true", "seed=[0,4]", "model=nanogpt", *schedule)
    assert capsys.readouterr().out.count(f"To upload all runs: wandb sync {run.path.parent}/*/wandb\n") == 1
    for seed, log in zip((0, 4), offline_runs(run.path), strict=True):
        found = records(log)
        (started,) = found["run"]
        assert (started["run_group"], started["display_name"]) == (run.name, f"{run.name}/seed={seed}")
        config = {key: value for key, value in started["config"]["update"].items() if key != "_wandb"}
        assert config == {**run.config(), "seed": seed}
        assert started["tags"] == ["add", "random", "nanogpt", "3 bits"]
        *history, last = (record["item"] for record in found["history"])
        assert last["curves.format"] == "png"
        assert "epoch" not in last, "the row of the picture would count as another epoch"
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
    assert line.endswith(f"logging offline. To upload all runs later: wandb sync {home.parent}/*/wandb")
    log, _ = offline_runs(home)
    assert [record["item"]["epoch"] for record in records(log)["history"]] == [1, 2]
    server.shutdown()


@pytest.mark.parametrize(
    ("environment", "options"),
    [({"WANDB_MODE": "foo"}, {}), ({"WANDB_BASE_URL": "nowhere"}, {}), ({}, {"project": "a/b"})],
    ids=str,
)
def test_failed_start_of_wandb_is_one_line_and_training_continues(monkeypatch, home, capfd, environment, options):
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


def test_failed_run_is_marked_failed_and_a_resumed_one_replaces_it(home):
    """One file of a seed has each epoch once, so any order of uploads is right. A probe's file stays."""
    rows = [{"epoch": epoch, "seed": seed, "val_seq_acc": epoch / 4} for epoch in (1, 2, 3) for seed in (0, 1)]
    Figure().savefig(home / "figure.png")
    for earlier, later in ((0, 2), (1, 3)):  # epoch 2 is trained again
        logger = Wandb(project="sums")
        logger.start("a-run", (0, 1), {}, home)
        logger.replay(rows[: 2 * earlier])
        logger.log(rows[2 * earlier : 2 * later])
        for log in offline_runs(home):
            log.with_suffix(".wandb.synced").touch()  # by an upload that came too early
        logger.finish([])
        Wandb().probe("a-run", 0, "errors", pd.DataFrame({"layer": [1]}), home / "figure.png", home)
        time.sleep(1)  # the names of the files have the second of their start
    assert not [*home.glob("wandb/*-epochs/*.synced")]
    *logs, probe, _ = sorted(offline_runs(home), key=lambda log: not log.parent.name.endswith("epochs"))
    assert [log.name for log in logs] == ["run-a-run-of-0.wandb", "run-a-run-of-1.wandb"]
    found = records(logs[0])
    assert [(item["_step"], item["epoch"]) for item in (row["item"] for row in found["history"])] == [
        (1, 1),
        (2, 2),
        (3, 3),
    ]
    assert [record["exit_code"] for record in found["exit"]] == [1]
    assert found["run"][0]["project"] == "sums"
    logged = {key.partition(".")[0] for record in records(probe)["history"] for key in record["item"]}
    assert {"errors/rows", "errors/figure"} <= logged
    disabled = Wandb(mode="disabled")  # writes nothing that could replace the files
    disabled.start("a-run", (0, 1), {}, home)
    disabled.replay(rows)
    disabled.finish([])
    assert all(log.is_file() for log in logs)


@pytest.mark.slow
def test_history_of_an_interrupted_or_extended_run_is_whole(train, home):
    """It has learning rates and accuracies by length, which ``metrics.csv`` lacks."""
    options = ["logger=wandb", "model=nanogpt", "scheduler=step", "model.scheduler.step_size=1", "task.min_bits=2"]
    options += ["data.examples=40", "checkpoint.every_n_epochs=2"]
    power_cut(train, MetricsWriter, 3, True, *options, "trainer.max_epochs=4")  # epoch 3 is trained and logged again
    for epochs in (4, 5):
        (log,) = offline_runs(train(*options, f"trainer.max_epochs={epochs}").path)
        rows = [row["item"] for row in records(log)["history"] if "train_loss" in row["item"]]
        assert [row["epoch"] for row in rows] == [*range(1, epochs + 1)]
        assert [row["learning_rate"] for row in rows] == pytest.approx([1e-3 / 2**epoch for epoch in range(epochs)])
        assert all("val_seq_acc/length=2" in row for row in rows)


def test_names_too_long_for_the_server_are_shortened(monkeypatch):
    given, names = [], ["x" * 150 + "-1", "x" * 150 + "-2", "y" * 124]
    monkeypatch.setattr(wandb, "init", lambda **options: given.append(options) or MagicMock())
    for name in names:
        Wandb().start(name, (0, 1), {"task": {"name": "t" * 65}}, Path("runs") / name)
    assert max(len(options[key]) for options in given for key in ("id", "group", "name")) <= 128
    assert len({options["id"] for options in given}) == len({options["name"] for options in given}) == 6
    assert [options["config"].get("run", options["group"]) for options in given[::2]] == names, "the whole name"
    assert all(len(tag) <= 64 for options in given for tag in options["tags"])
    with pytest.raises(UserError, match="of 1 to 128 letters"):
        compose("train", ["logger=wandb", f"logger.project={'p' * 129}"])


@pytest.mark.slow
def test_finished_run_of_an_agent_reports_its_objective(train, home, monkeypatch):
    run = train()
    train("logger=wandb")
    assert not offline_runs(run.path), "without an agent a skipped run logs nothing"
    monkeypatch.setenv("WANDB_SWEEP_ID", "a-sweep")
    wandb.teardown()
    train("logger=wandb")
    (log,) = offline_runs(run.path)
    found = {key: value for record in records(log)["summary"] for key, value in record["update"].items()}
    assert found["val_seq_acc"] == pytest.approx(run.summary()["seeds"][0]["val_seq_acc"])
