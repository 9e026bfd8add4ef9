"""Files of a run with random contents are read, or refused in one line; nothing else happens.

``HOSTILE_EXAMPLES=20000 python -m pytest tests/hostile/test_fuzz.py`` looks for longer.
"""

import contextlib
import copy
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.interp.subject import load_checkpoint, load_run
from arith_erd.report.collect import collect
from arith_erd.report.paper import load_paper
from arith_erd.runs import run_name
from arith_erd.tasks import Add

from .world import World, snapshot

EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "8"))
fuzz = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES <= 8, suppress_health_check=list(HealthCheck)
)
FILES = ("config.yaml", "metrics.csv", "summary.json", "weights/seed=0.safetensors", "last.ckpt")
CUTS = st.floats(0, 1, exclude_max=True)
MUTATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), CUTS, st.integers(0, 7)),
        st.tuples(st.just("cut"), CUTS, st.just(0)),
        st.tuples(st.just("drop"), CUTS, st.integers(1, 300)),
        st.tuples(st.just("double"), CUTS, st.integers(1, 300)),
        st.tuples(st.just("insert"), CUTS, st.binary(max_size=30)),
    ),
    min_size=1,
    max_size=4,
)
WORDS = ("add", "../x", "${oc.env:SECRET}", "${task}", "_target_", "arith_erd.tasks.Add", "os.system", "0-4", "\0", "")
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**40), 10**40),
    st.floats(),
    st.sampled_from(WORDS),
    st.text(max_size=10),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


def mutated(data: bytes, mutations: list[tuple[str, float, Any]]) -> bytes:
    for kind, share, how in mutations:
        at = int(share * len(data))
        if kind == "flip" and data:
            data = data[:at] + bytes([data[at] ^ (1 << how)]) + data[at + 1 :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "drop":
            data = data[:at] + data[at + how :]
        elif kind == "double":
            data = data[: at + how] + data[at:]
        elif kind == "insert":
            data = data[:at] + how + data[at:]
    return data


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@contextlib.contextmanager
def holding(path: Path, data: bytes) -> Iterator[None]:
    """The file holds other bytes for the length of the block."""
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(before)


def reads_or_refuses(world: World) -> None:
    """Ask everybody who reads a run."""
    before = snapshot(world.folder)
    for ask in (
        world.run.config,
        world.run.metrics,
        world.run.summary,
        lambda: load_run(world.run.path, 0),
        lambda: collect(world.folder / "runs", load_paper().setup),
    ):
        message = ""
        try:
            ask()
        except UserError as error:
            message = str(error)
        assert message.isprintable()  # so that it is one line, too
    assert snapshot(world.folder) == before


@pytest.mark.parametrize("name", FILES)
@fuzz
@given(mutations=MUTATIONS)
def test_damaged_bytes_are_read_or_refused(world: World, name: str, mutations: list[tuple[str, float, Any]]) -> None:
    if name == "last.ckpt":
        world.run.weights(0).rename(world.folder / "aside")
    try:
        with holding(world.file(name), mutated(world.file(name).read_bytes(), mutations)):
            reads_or_refuses(world)
    finally:
        if name == "last.ckpt":
            (world.folder / "aside").rename(world.run.weights(0))


def paths(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in node.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from paths(value, (*path, key))


def replaced(node: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value


@fuzz
@given(data=st.data())
def test_other_values_in_a_configuration_are_read_or_refused(world: World, data: st.DataObject) -> None:
    config = world.config
    replaced(config, data.draw(st.sampled_from([*paths(config)])), data.draw(VALUES))
    with holding(world.file("config.yaml"), yaml.safe_dump(config, sort_keys=False).encode()):
        reads_or_refuses(world)
    with contextlib.suppress(UserError, KeyError, TypeError):  # of a configuration that was never checked
        assert "/" not in run_name(config)


@fuzz
@given(data=st.data())
def test_other_values_in_a_summary_are_read_or_refused(world: World, data: st.DataObject) -> None:
    summary = copy.deepcopy(world.summary)
    node = data.draw(st.sampled_from([summary, summary["seeds"][0], summary["versions"]]))
    node[data.draw(st.sampled_from([*node, "replica", "run", "new"]))] = data.draw(VALUES)
    with holding(world.file("summary.json"), json.dumps(summary, default=str).encode()):
        reads_or_refuses(world)


@fuzz
@given(mutations=MUTATIONS)
def test_foreign_weights_are_read_or_refused(world: World, mutations: list[tuple[str, float, Any]]) -> None:
    path = world.folder / "model"
    path.write_bytes(mutated(world.run.checkpoint.read_bytes(), mutations))
    with pytest.raises(UserError):
        load_checkpoint(path, Add(3))
    path.unlink()


@settings(fuzz, max_examples=EXAMPLES // 2)
@given(data=st.data())
def test_any_typed_override_is_accepted_or_refused(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(_keys()))
    value = data.draw(st.one_of(st.sampled_from(WORDS), st.text(max_size=12), VALUES.map(str)))
    with contextlib.suppress(UserError):
        compose("train", [f"{key}={value}"])


@cache
def _keys() -> list[str]:
    return [".".join(path) for path in paths(compose("train").resolved)]
