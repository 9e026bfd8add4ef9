"""Does a change of code change a number? Weights and metrics bit for bit, the science digit for digit.

    python -m benchmarks.oracle before            # in a checkout; five minutes of one core
    diff -r before after                          # of another checkout, on the same machine

``runs.json`` has a hash for each tensor of five tiny runs, and for their ``metrics.csv`` without seconds.
``mechanism.csv`` and ``place_value.csv`` have the rows of these probes, ``methods.csv`` the scores of the methods that
take seconds, for thirteen networks: those written by hand, an untrained one, and the two that are shipped. Names of
runs, and what follows from ``paper/results/``, are compared by tests.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch
from safetensors.numpy import load_file

import arith_erd as ae
from arith_erd.models.handcoded import PROGRAMS
from arith_erd.paper.studies.methods import METHODS

TINY = "task.bits=4 trainer.max_epochs=2 trainer.accelerator=cpu seed=0-1"
TRAINED = ["", "model=nanogpt", "ablation=squeezed_encoder", "split=vs_v", "scheduler=warmup_cosine optimizer=adamw"]
SEED = 2000
SLOW_METHODS = ("INLP", "LEACE", "DAS, rank 1", "DAS, rank 2")
PROBES: dict[str, dict[str, Any]] = {
    "mechanism": {"num_examples": 128, "num_steered": 128},
    "place_value": {"num_pairs": 256},
}


def trained(options: str) -> dict[str, str]:
    """Hashes of what a run leaves."""
    environment = os.environ | {"PYTHONPATH": "src", "OMP_NUM_THREADS": "1"}
    with TemporaryDirectory() as runs:
        words = [*options.split(), f"runs_dir={runs}"]
        subprocess.run([sys.executable, "train.py", *words], env=environment, stdout=sys.stderr, check=True)
        (run,) = Path(runs).glob("*-*")
        files = {path.name: load_file(path) for path in run.glob("weights/*.safetensors")}
        tensors = {
            f"{file} {key}": digest(f"{tensor.dtype}{tensor.shape}".encode() + tensor.tobytes())
            for file, state in files.items()
            for key, tensor in state.items()
        }
        metrics = pd.read_csv(run / "metrics.csv", dtype=str).drop(columns="seconds")
        return tensors | {"metrics.csv": digest(metrics.to_csv().encode())}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def networks() -> Iterator[tuple[str, ae.Hooked]]:
    for name in PROGRAMS:
        yield name, ae.load_handcoded(name, SEED)
    torch.manual_seed(0)
    yield "untrained", ae.Hooked(ae.Transformer(15, 8), task=ae.Add())
    for name in ("add-transformer", "add-nanogpt"):
        yield name, ae.load_pretrained(name)


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True)
    torch.set_num_threads(1)
    hashes: dict[str, str] = {}
    for options in TRAINED:
        hashes |= {f"'{options}', {what}": value for what, value in trained(f"{TINY} {options}").items()}
    (out / "runs.json").write_text(json.dumps(hashes, indent=1, sort_keys=True))
    known = [*networks()]
    for probe, settings in PROBES.items():
        rows = [ae.probe(probe, model, **settings).rows.assign(network=name) for name, model in known]
        pd.concat(rows).to_csv(out / f"{probe}.csv", index=False)
    fast = {name: method for name, method in METHODS.items() if name not in SLOW_METHODS}
    scores = [(method, name, score(model)) for name, model in known for method, score in fast.items()]
    pd.DataFrame(scores, columns=["method", "network", "score"]).to_csv(out / "methods.csv", index=False)


if __name__ == "__main__":
    main()
