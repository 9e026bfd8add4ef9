"""Weights & Biases without an account, without a network, without a terminal."""

import json
import os
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from unittest.mock import MagicMock

import pandas as pd
import pytest
import wandb
from matplotlib.figure import Figure

from arith_erd.errors import UserError
from arith_erd.loggers.wandb import Wandb
from arith_erd.runs import METRICS

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


def epochs(path: Path) -> list[int]:
    return [record["item"]["epoch"] for record in records(path)["history"]]


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """Where W&B keeps its things, and where it finds no key."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("WANDB")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def online(cli, home):
    """Logs two epochs in a process of its own, with ``mode=online``: W&B reads its environment only once."""

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        return cli("-c", TWO_EPOCHS, cwd=home, timeout=90, **environment)

    return run


TWO_EPOCHS = """
import time
from pathlib import Path
from arith_erd.loggers.wandb import Wandb
logger, started = Wandb(mode="online", timeout=1), time.monotonic()
logger.start("a-run", (3,), {"seed": "3"}, Path("."))
for epoch in (1, 2):
    logger.log([{"epoch": epoch, "seed": 3, "train_loss": 1.0 / epoch, "val_seq_acc": 0.5}])
logger.finish([{"seed": 3, "val_mae": 2.5}])
print(time.monotonic() - started)
"""


def test_two_seeds_offline(train, home, capsys):
    schedule = ["scheduler=step", "model.scheduler.step_size=1", "model.scheduler.gamma=0.1"]
    run = train("logger=wandb", "logger.artifacts=true", "seed=[0,4]", "model=nanogpt", *schedule)
    assert run.finished
    assert capsys.readouterr().out.count(f"To upload: wandb sync {run.path}/wandb/offline-run-*") == 1
    logs = offline_runs(run.path)
    assert len(logs) == 2
    for seed, log in zip((0, 4), logs, strict=True):
        found = records(log)
        (started,) = found["run"]
        assert started["project"] == "arith_erd"
        assert started["run_group"] == run.name
        assert started["display_name"] == f"{run.name}/seed={seed}"
        config = {key: value for key, value in started["config"]["update"].items() if key != "_wandb"}
        assert config == {**run.config(), "seed": seed}
        assert "${" not in str(config)
        assert started["tags"] == ["add", "random", "nanogpt", "3 bits"]
        history = [record["item"] for record in found["history"]]
        assert history.pop()["curves.format"] == "png"
        assert [item["learning_rate"] for item in history] == pytest.approx([1e-3, 1e-4])
        (artifact,) = found["artifact"]
        files = {Path(entry["local_path"]) for entry in artifact["manifest"]["contents"]}
        assert files == {run.weights(seed), run.config_file}, "they are read where they lie"
        rows = [row for row in run.metrics() if row["seed"] == seed]
        assert [item["epoch"] for item in history] == [1, 2]
        for item, row in zip(history, rows, strict=True):
            for column in METRICS:
                if column != "seed":
                    assert item[column] == pytest.approx(row[column], rel=1e-6), column
        assert [record.get("exit_code", 0) for record in found["exit"]] == [0]
        summaries = {key: value for record in found["summary"] for key, value in record["update"].items()}
        expected = next(entry for entry in run.summary()["seeds"] if entry["seed"] == seed)
        assert {key: summaries[key] for key in expected} == pytest.approx(expected)


def test_online_without_a_key_continues_offline(online, home):
    result = online()
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("no API key") == 1
    (log,) = offline_runs(home)
    assert epochs(log) == [1, 2]


def test_online_without_a_server_continues_offline(online, home):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    result = online(WANDB_API_KEY=KEY, WANDB_BASE_URL=f"http://127.0.0.1:{port}")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("logging offline") == 1
    (log,) = offline_runs(home)
    assert epochs(log) == [1, 2]


@pytest.fixture
def server():
    """``server(answer)`` serves W&B's address with ``answer(handler)``; gives its URL."""
    servers = []

    def start(answer: Callable[[BaseHTTPRequestHandler], None]) -> str:
        methods = {f"do_{method}": answer for method in ("GET", "POST", "PUT")} | {"log_message": lambda *_: None}
        http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (BaseHTTPRequestHandler,), methods))
        http.daemon_threads = True
        Thread(target=http.serve_forever, daemon=True).start()
        servers.append(http)
        return f"http://127.0.0.1:{http.server_address[1]}"

    yield start
    for http in servers:
        http.shutdown()
        http.server_close()


def nothing(handler: BaseHTTPRequestHandler) -> None:
    """As firewalls do: accept, and never answer."""
    time.sleep(60)


def a_greeting_and_nothing_more(handler: BaseHTTPRequestHandler) -> None:
    if handler.command != "GET":
        nothing(handler)
    handler.send_response(204)
    handler.end_headers()


def no_to_every_key(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(204 if handler.command == "GET" else 401)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (nothing, "no answer within 1 s"),
        (a_greeting_and_nothing_more, "Error"),
        (no_to_every_key, "the server refused the API key"),
    ],
)
def test_broken_server_continues_offline(online, home, server, answer, why):
    result = online(WANDB_API_KEY=KEY, WANDB_BASE_URL=server(answer))
    assert result.returncode == 0, result.stderr
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("W&B")]
    assert why in line
    assert line.endswith("logging offline. To upload later: wandb sync ./wandb/offline-run-*")
    waited = float(result.stdout.splitlines()[-1])
    assert waited < 10, "with timeout=1, and a machine that is busy"
    (log,) = offline_runs(home)
    assert epochs(log) == [1, 2]


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ({"WANDB_MODE": "foo"}, {}),
        ({"WANDB_INIT_TIMEOUT": "abc"}, {}),
        ({"WANDB_CONSOLE": "foo"}, {}),
        ({"WANDB_RESUME": "foo"}, {}),
        ({"WANDB_TAGS": "[1", "WANDB_RUN_ID": "a/b"}, {}),
        ({"WANDB_BASE_URL": "nowhere"}, {}),
        ({"WANDB_BASE_URL": "nowhere", "WANDB_API_KEY": KEY}, {"mode": "online"}),
        ({}, {"project": "a/b"}),
    ],
    ids=str,
)
def test_what_keeps_wandb_from_starting_is_one_line_and_training_continues(
    monkeypatch, home, capfd, environment, options
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    wandb.teardown()  # else it has read its environment already
    logger = Wandb(**options)
    logger.start("a-run", (3, 4), {}, home)
    logger.log([{"epoch": 1, "seed": 3, "train_loss": 1.0}])
    logger.finish([{"seed": 3, "val_mae": 2.5}])
    wandb.teardown()
    said = capfd.readouterr()
    (line,) = (said.out + said.err).splitlines()
    assert line.startswith("W&B: ")
    assert line.endswith("; training continues without it")
    assert len(line) < 300


def test_project_may_be_a_number(home):
    """``logger.project=3`` on the command line."""
    logger = Wandb(project=3)  # type: ignore[arg-type]
    logger.start("a-run", (0,), {}, home)
    logger.finish([])
    (log,) = offline_runs(home)
    assert records(log)["run"][0]["project"] == "3"


def test_panic_of_the_service_does_not_reach_the_terminal(home, capfd):
    """The service inherits its standard error, where Go prints a panic, from the process that starts it."""
    wandb.teardown()
    logger = Wandb()
    logger.start("a-run", (0,), {}, home)
    children = [pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    services = [pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "wandb-core\n"]
    assert [os.readlink(f"/proc/{pid}/fd/2") for pid in services] == [os.devnull]
    logger.finish([])
    assert not capfd.readouterr().err


def test_training_continues_when_the_wandb_service_dies(monkeypatch, home, capsys):
    broken = MagicMock()
    broken.log.side_effect = ConnectionResetError("Connection lost")
    broken.finish.side_effect = TimeoutError("not uploaded")
    monkeypatch.setattr(Wandb, "_init", lambda self, *_: broken)
    logger = Wandb()
    logger.start("a-run", (3,), {}, home)
    for epoch in (1, 2):
        logger.log([{"epoch": epoch, "seed": 3, "train_loss": 1.0}])
    logger.finish([{"seed": 3, "val_mae": 2.5}])
    assert capsys.readouterr().out.count("logging may be incomplete. To upload what is there: wandb sync") == 1


def test_failed_run_is_marked_failed_and_can_resume(home):
    """Each start of the same seed has the same id, from which W&B knows that it is the same run."""
    for _ in range(2):
        logger = Wandb()
        logger.start("a-run", (0, 1), {}, home)
        logger.finish([])
    logs = offline_runs(home)
    assert {log.name for log in logs} == {"run-a-run-of-0.wandb", "run-a-run-of-1.wandb"}
    for log in logs:
        assert [record["exit_code"] for record in records(log)["exit"]] == [1]


def test_probe_rows_and_figure_are_logged(home):
    Figure().savefig(home / "figure.png")
    rows = pd.DataFrame({"layer": [1, 2], "correlation": [0.5, 0.25]})
    Wandb().probe("a-run", 3, "errors", rows, home / "figure.png", home / "a-run")
    (log,) = offline_runs(home / "a-run")
    keys = {key for record in records(log)["history"] for key in record["item"]}
    assert any(key.startswith("errors/rows") for key in keys)
    assert any(key.startswith("errors/figure") for key in keys)


def test_disabled_writes_nothing(home):
    logger = Wandb(mode="disabled")
    logger.start("a-run", (3,), {}, home)
    logger.log([{"epoch": 1, "seed": 3, "train_loss": 1.0}])
    logger.finish([{"seed": 3, "val_mae": 2.5}])
    assert not list(home.rglob("*.wandb"))


@pytest.mark.parametrize("mode", ["on", "", None, True])
def test_other_modes_are_refused(mode):
    with pytest.raises(UserError, match=rf"^logger\.mode={mode}: expected offline or online or disabled$"):
        Wandb(mode=mode)
