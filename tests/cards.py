"""A small card of ``probe=mechanism``, as its files hold it, for every test that reads one."""

import json
from typing import Any

import pandas as pd


def bit(position: int, changed: float | None, follows: list[str]) -> dict[str, Any]:
    prefix = {"follows_prefix": changed, "needs_prefix": None if changed is None else 0.0}
    return {"position": position, **prefix, "follows": follows}


def seed_card(seed: int = 0) -> dict[str, Any]:
    return {
        "seed": seed,
        "network": "mine",
        "verdict": "none",
        "nearest": "mixed",
        "distance": 1.5,
        "distances": {"erd": 3.0, "mixed": 1.5},
        "accuracy": 0.875,
        "reasons": ["no algorithm is near"],
        "bits": [bit(1, 0.0, []), bit(2, 0.25, ["carry"]), bit(3, 0.5, ["carry"])],
    }


def whole(*seeds: dict[str, Any], **more: Any) -> str:
    return json.dumps({"task": "add", "bits": 3, "verdict": "none", "calibrated": True, "seeds": seeds} | more)


def table(*seeds: int) -> pd.DataFrame:
    columns = ["seed", "test", "component", "site", "position", "value"]
    return pd.DataFrame([(seed, "verdict", "none", "", "all", 1.5) for seed in seeds], columns=columns)
