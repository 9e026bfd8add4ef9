"""After how many epochs is the authors' own code at 95%? ``python benchmarks/authors_epochs.py authors d_model=32``

Where a number of table 3 does not come out, this tells whether it comes out of their code. Their training function runs
as it is on addition or multiplication, random split. Only these are put in its place:

* arguments of their ``Transformer``, such as ``d_model=32``, with ``d_ff`` four times as large, as in their code;
* the seed, which they fix;
* the evaluation: training pairs are not evaluated, and validation pairs in one teacher-forced pass, whose exact answers
  are those of greedy decoding.

It prints the validation sequence accuracy after each epoch, a row of ``results/authors-epochs.csv``, and ends at 95%.
"""

import argparse
import contextlib
import importlib
import inspect
import io
import sys
from pathlib import Path
from typing import Any

import torch

GOAL = 0.95
OPERATIONS = {"add": "+", "mul": "x"}


@torch.no_grad()
def sequence_accuracy(network: torch.nn.Module, source: torch.Tensor, target: torch.Tensor) -> float:
    """Share of rows that are right in every token, of (N, n) and (N, m + 1) tokens of theirs."""
    right = [
        (network(x, y[:, :-1]).argmax(-1) == y[:, 1:]).all(1)
        for x, y in zip(source.split(1024), target.split(1024), strict=True)
    ]
    return float(torch.cat(right).double().mean())


def epochs_to_goal(clone: Path, task: str, changed: dict[str, int], seed: int, longest: int) -> int | None:
    """The first epoch at which the validation sequence accuracy is 95%; None if it never is."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(clone / "EncoderDecoderTransformer"))
    module: Any = importlib.import_module("TransformerTraining")
    theirs, seed_with, out = module.Transformer, torch.manual_seed, sys.stdout
    epoch, what = 0, " ".join([task, *(f"{name}={value}" for name, value in changed.items())])

    def network(*arguments: Any) -> torch.nn.Module:
        given = inspect.signature(theirs).bind(*arguments).arguments | changed
        return theirs(**given | {"d_ff": changed.get("d_ff", 4 * given["d_model"])})

    def evaluate(trained: torch.nn.Module, device: Any, source: torch.Tensor, target: torch.Tensor, *_: Any) -> Any:
        nonlocal epoch
        if len(source) > 4096:  # the training pairs, which come first
            return 0.0, 0.0
        epoch, accuracy = epoch + 1, sequence_accuracy(trained, source, target)
        print(f"{what},{seed},{epoch},{accuracy:.9f}", file=out, flush=True)
        if accuracy >= GOAL:
            raise StopIteration
        return 0.0, accuracy

    module.Transformer, module.eval_accuracy_autoregressive = network, evaluate
    module.torch.manual_seed = lambda _: seed_with(seed)
    with contextlib.redirect_stdout(io.StringIO()):  # a dot for every step
        try:
            module.transformer_training(OPERATIONS[task], run_count=1, epochs=longest)
        except StopIteration:
            return epoch
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clone", type=Path, help="a clone of the authors' repository")
    parser.add_argument("changed", nargs="*", help="arguments of their Transformer: d_model=32, num_heads=1, d_ff=0")
    parser.add_argument("--task", choices=OPERATIONS, default="add")
    parser.add_argument("--seed", type=int, default=23, help="23 is theirs")
    parser.add_argument("--epochs", type=int, default=1000, help="at most")
    options = parser.parse_args()
    changed = {name: int(value) for name, value in (pair.split("=") for pair in options.changed)}
    print("what,seed,epoch,val_seq_acc")
    reached = epochs_to_goal(options.clone, options.task, changed, options.seed, options.epochs)
    print(f"95% at epoch {reached}" if reached else f"below 95% after {options.epochs} epochs", file=sys.stderr)


if __name__ == "__main__":
    main()
