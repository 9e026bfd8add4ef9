"""Which heads bring which operand bits to a position of the answer? Path patching (Goldowsky-Dill et al., 2023).

    python benchmarks/path_patching.py rows.csv runs/add-random-transformer-seed=0-...

One head, at position t, gives what it gives if bit i of an operand is inverted, a and b alike. The prefix stays the
same, and later attention outputs at position t stay those of the base run, so the change takes the direct path to the
logits. Prefixes are random with 0 <= c < 1 (`mechanism.place_value`), and a_t = b_t = 0. ``effect`` is the mean change
of the logit of 1 less that of 0, counted positive where bit i becomes 1; ``whole`` is the same if bit i is inverted for
the whole network.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import arith_erd as ae
from arith_erd.bits import ONE, ZERO
from arith_erd.mechanism.place_value import Columns, generator, random_inputs


@torch.no_grad()
def effects(model: ae.Hooked, t: int, pairs: int) -> Iterator[dict[str, Any]]:
    """The effect of each head on bit t of the answer, for each operand bit below it."""
    rng, sites = generator("paths", t), [name for name in model.sites if name.endswith("attn.z") and name[:3] == "dec"]
    drawn = random_inputs(rng, Columns(model.task), t, 40 * pairs, empty=True)
    base = drawn.chosen(np.flatnonzero((drawn.c >= 0) & (drawn.c < 1))[:pairs])
    inputs = model.inputs(base.tensors())
    outputs = [site.replace("attn.z", "attn_out") for site in sites]
    logits, cache = model.run_with_cache(inputs, [*sites, *outputs])
    turned = rng.integers(0, 2, len(base.a))
    for place in range(t):
        a, b = (x ^ ((turned == i) << place) for i, x in enumerate((base.a, base.b)))
        up = torch.from_numpy(2 * (np.where(turned == 0, a, b) >> place & 1) - 1)  # 1 where the bit becomes 1
        other, given = model.run_with_cache((model.inputs(model.task.examples(a, b))[0], inputs[1]), sites)

        def effect(found: torch.Tensor, up: torch.Tensor = up) -> float:
            change = (found - logits)[:, -1, ONE] - (found - logits)[:, -1, ZERO]
            return float((change.cpu() * up).double().mean())

        for i, site in enumerate(sites):
            later = [ae.Replace(name, t, cache[name][:, t]) for name in outputs[i + 1 :]]
            for head in range(cache[site].shape[2]):
                z = cache[site][:, t].clone()  # (N, nh, hs)
                z[:, head] = given[site][:, t, head]
                patched = model.run(inputs, [ae.Replace(site, t, z), *later])
                row = {"seed": model.seed, "bit": t, "place": place, "site": site.removesuffix(".z"), "head": head + 1}
                yield row | {"effect": effect(patched), "whole": effect(other), "n": len(base.a)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("networks", nargs="+", help="runs, or files of the authors' weights")
    parser.add_argument("--bit", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=128)
    given = parser.parse_args()
    tables = []
    for path in given.networks:
        model = ae.load_run(path) if Path(path).is_dir() else ae.load_checkpoint(path, ae.Add())
        tables.append(pd.DataFrame(effects(model, given.bit, given.pairs)).assign(network=model.name))
    pd.concat(tables).to_csv(given.out, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
