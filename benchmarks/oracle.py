"""Do weights and metrics of runs stay the same, bit for bit, when code changes?

    python benchmarks/oracle.py > after.json     # in a checkout; a minute of one core
    diff before.json after.json                  # of another checkout, on the same machine

One line for each hash: of all tensors of five tiny runs, and of their ``metrics.csv`` without seconds. Names of runs,
and what follows from ``results/``, are compared by tests.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from safetensors.numpy import load_file

TINY = "task.bits=4 trainer.max_epochs=2 trainer.accelerator=cpu seed=0-1"
TRAINED = ["", "model=nanogpt", "ablation=squeezed_encoder", "split=vs_v", "scheduler=warmup_cosine optimizer=adamw"]


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


def main() -> None:
    found: dict[str, str] = {}
    for options in TRAINED:
        found |= {f"'{options}', {what}": value for what, value in trained(f"{TINY} {options}").items()}
    print(json.dumps(found, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
