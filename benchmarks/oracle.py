"""Do names, weights and metrics of runs stay the same, bit for bit, when code changes?

    python benchmarks/oracle.py > after.json     # in a checkout; two minutes of one core
    diff before.json after.json                  # of another checkout, on the same machine

One line for each value: the names of some fifty configurations, and of five tiny runs the hashes of all tensors and of
``metrics.csv`` without seconds. What follows from ``results/`` is compared by tests.
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from safetensors.numpy import load_file

sys.path.insert(0, "src")  # of the checkout that it runs in
from arith_erd import compose
from arith_erd.errors import UserError

NAMED = [
    *("", "task=mul", "task=random_output", "task=sub", "task=mod_add", "task=add3", "split=vs_t", "split=vs_v"),
    *("model=nanogpt", "task=mul model=nanogpt seed=0-4", "task=mul split=vs_t", "task=mul split=vs_v model=nanogpt"),
    *(f"ablation={name}" for name in ("squeezed_encoder", "one_head", "d_model_32", "no_positional_encoding")),
    *("ablation=no_attention", "ablation=no_feed_forward trainer.max_epochs=1000 trainer.stop_at=0.95 seed=3"),
    *("ablation=d_model_32 trainer.stop_at=0.95 trainer.max_epochs=1000 seed=0", "seed=0-4", "seed='0-4,7'"),
    *("task.bits=4 model.net.num_heads=4", "task.base=10 task.bits=3", "task.prompt_order=plain", "split.fraction=0.5"),
    *("task.completion_order=plain model=nanogpt", "split.seed=3", "task=random_output task.seed=2"),
    *(f"optimizer={name}" for name in ("adamw", "sgd", "adagrad", "rmsprop", "nadam model=nanogpt")),
    *(f"scheduler={name}" for name in ("step", "warmup_cosine", "warmup_linear trainer.max_epochs=7")),
    *("model.optimizer.lr=3e-4", "model.optimizer.betas=[0.9,0.999] model.optimizer.weight_decay=0.01"),
    *("loss=cross_entropy_and_value", "model.loss.label_smoothing=0.1", "trainer.precision=bf16-mixed"),
    *("data.batch_size=64 model.net.dropout=0", "model=nanogpt model.gradient_clip=null model.net.num_layers=2"),
    *("scale=smoke model=nanogpt", "scale=mini model=mlp"),
]
TINY = "task.bits=4 trainer.max_epochs=2 trainer.accelerator=cpu seed=0-1"
TRAINED = ["", "model=nanogpt", "ablation=squeezed_encoder", "split=vs_v", "scheduler=warmup_cosine optimizer=adamw"]


def name(options: str) -> str:
    try:
        return compose("train", [*shlex.split(options, posix=False), "runs_dir=none"]).name
    except UserError:
        return "refused"


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
    found = {f"name of '{options}'": name(options) for options in NAMED}
    for options in TRAINED:
        found |= {f"'{options}', {what}": value for what, value in trained(f"{TINY} {options}").items()}
    print(json.dumps(found, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
