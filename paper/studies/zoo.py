"""Networks trained to compute by known variables, and what the tests of `one_sentence` say of them.

    paper/scripts/zoo.sh runs_dir=zoo # trains them
    python -m arith_erd.paper.studies.zoo paper/results/zoo.csv zoo/add-*

A row is a network: its class, its bits, the variables that it was trained to compute by ("none": the task alone), the
share of pairs that it answers right, the criteria of ``paper/preregistrations/1-one-sentence.md``, the least share,
over answer tokens, that follow an interchange of a variable between held-out pairs after the last epoch, ``others``,
its `leakage`, and the beginning of the SHA-256 of its file of weights. Two minutes of one core a network.
"""

import argparse
import hashlib
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import arith_erd as ae
from arith_erd.bundled import RESULTS
from arith_erd.catalog.zoo import MIN_INTERCHANGE_ACCURACY, worst_interchange_accuracy
from arith_erd.interp.interventions import Replace
from arith_erd.runs.directory import Run
from arith_erd.system.cli_errors import one_line_errors

from ..formats import MODELS, format_range, markdown
from .one_sentence import CRITERIA, INTERCHANGE_SITES, load_networks, measure_network, score_networks

LAST_BUT_ONE = INTERCHANGE_SITES | {"transformer": "dec.2.resid_mid_cross"}  # of three layers, as dec.5 is of six
HELD = {
    "none": "trained on the task alone", "sum": "sum", "carry+xor": "carries",
    "carry+prefix+xor prefix_carry": "carries, from the last token",
    "carry+prefix+xor lookahead_carry": "carries, no prefix",
    "prefix+sum erd": "sum, no prefix", "prefix+total local_remainder": "bit sums with c, by the rule",
}  # fmt: skip


@torch.no_grad()
def leakage(model: ae.Hooked, variables: dict[str, Any]) -> float:
    """How little the rest of the site carries: 0 if no answer follows it.

    At all positions the coordinates that no variable has come from another held-out pair. The share of tokens in which
    the two right answers differ, and in which the network gives the other pair's.
    """
    examples = model.task.examples()
    assert model.provenance.split is not None
    base = examples[np.random.default_rng(0).permutation(np.flatnonzero(model.provenance.split(examples)))[:512]]
    mapped = [at for at in variables.values() if "dims" in at]
    (site,) = {at["site"] for at in mapped}
    _, cache = model.run_with_cache(base, [site])
    mixed = cache[site].roll(1, dims=0)
    for first, last in (at["dims"] for at in mapped):
        mixed[..., first : last + 1] = cache[site][..., first : last + 1]
    tokens = model.run(base, [Replace(site, None, mixed)]).argmax(-1).cpu().numpy()
    other = np.roll(base.completion, 1, axis=0)
    return float((tokens == other)[base.completion != other].mean())


def trained_by(loss: Mapping[str, Any]) -> str:
    """The variables and the rule of a loss: ``carry+prefix+xor lookahead_carry``, or ``none``."""
    rule = (loss.get("causal_model") or "").rpartition(".")[2]
    return " ".join(filter(None, ["+".join(sorted(loss.get("variables") or ())), rule])) or "none"


def table() -> str:
    """Of each kind, how many learned it, and the measures of those that answer every pair."""
    measures = ("swap_own", "graded_agreement", "graded_range", "vectors")
    lines = [["network", "bits", "holds", "every pair right", "accepted", *(CRITERIA[name].label for name in measures)]]
    table = pd.read_csv(RESULTS / "zoo.csv", keep_default_na=False, na_values=[""])
    for (network, bits), kind in product(product(("transformer", "nanogpt"), (5, 7)), HELD):
        by = table.query("network == @network and bits == @bits and trained_by == @kind")
        right = by[by["accuracy"] == 1]
        follow = (right["least_interchange"] >= MIN_INTERCHANGE_ACCURACY).sum()
        accepted = f"{follow} of {len(by)}" if kind != "none" else ""
        cells = [format_range((by if name == "vectors" else right)[name].dropna(), ".0%") for name in measures]
        row = [MODELS[network], str(bits), HELD[kind], f"{len(right)} of {len(by)}", accepted, *cells]
        lines += [row] if len(by) else []
    return markdown(*lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tables = []
    for path in options.runs:
        networks, run = [*load_networks(path)], Run(path)
        table = score_networks(pd.concat([measure_network(name, LAST_BUT_ONE[name], x) for name, _, x in networks]))
        config, loss = run.config(), run.config()["model"]["loss"]
        table.insert(1, "bits", config["task"]["bits"])
        table.insert(2, "trained_by", trained_by(loss))
        table["least_interchange"] = table["seed"].map(worst_interchange_accuracy(run))
        variables = loss.get("variables")
        table["others"] = [leakage(model, variables) if variables else None for *_, model in networks]
        files = map(run.weights_file, table["seed"])
        table["sha256"] = [hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files]
        tables.append(table.drop(columns="missed"))
    whole = pd.concat(tables)
    whole.to_csv(options.out, index=False, float_format="%.4g")
    print(whole.round(3).to_string(index=False))


if __name__ == "__main__":
    with one_line_errors():
        main()
