"""Where could 0.13% come from? Variants of the paper's projection (appendix D) on the authors' addition model.

    python benchmarks/nullspace.py PATH/TO/add_model

Prints how many of all 16,384 sums are right after each variant was applied to the embeddings at dec.3, for
``docs/found/amnesic.md``. Takes about a minute on one core.
"""

import sys
from pathlib import Path

import torch
from arith_erd.interp.subject import load_checkpoint
from torch import Tensor

from arith_erd.interp.erasure import inlp, whiten
from arith_erd.probes.amnesic import Site
from arith_erd.tasks import Add

ITERATIONS = (2, 160)


def probe_weights(x: Tensor, z: Tensor) -> Tensor:
    """Weights w (d,) of the least-squares probe of z (N, 1), of least norm: ``z ~ x @ w + c``."""
    white = whiten(x)
    z = z.double() - z.double().mean(dim=0)
    return (white.axes / white.scale) @ (white.white.T @ z / len(z)).squeeze(1)


def main(path: Path) -> None:
    task = Add()
    subject = load_checkpoint(path, task)
    site = Site(subject, "dec.3")
    pairs = task.examples()
    value = torch.as_tensor(task.concepts(pairs.a, pairs.b)["value"])
    accuracy = site.accuracy(torch.arange(len(pairs)))

    def report(name: str, x: Tensor) -> None:
        share = accuracy(x)
        print(f"{name:55} {share:9.4%}  {round(share * len(pairs)):6,} of {len(pairs):,}", flush=True)

    report("nothing erased", site.x)
    for iterations in ITERATIONS:
        report(f"INLP, {iterations} iterations", inlp(site.x, value, iterations)(site.x))
    x = site.x.double()
    for iteration in (1, 2):
        w = probe_weights(x, value)
        x = x - (x @ w)[:, None] * w  # I - w w^T with w as fitted: no projection unless |w| = 1
        report(f"x (I - w w^T), w not normalised (|w| = {w.norm():.3g}), {iteration}", x.float())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
