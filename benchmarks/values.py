"""Do networks follow a sum that is moved, or put elsewhere, by every definition of its direction?

    python benchmarks/values.py results/mechanism-values.csv authors=add_model transformer=runs/NAME erd=0

A network is a run, the authors' weights, or with the name of a reference the number of its variant. Rows::

    dose       64 pairs, all positions of a site moved by 1, 8 or 64: whole answers that become a + b + delta, with its
               prefix given. ``value`` is that of the best site, the encoder's last or one of the decoder's; ``control``
               the larger of random moves of the same length and of no move.
    transfer   200 couples, the sum's subspace at position t of one run put at t' of another, behind ``--site``:
               balanced share of answers with bit t' of that sum. ``value`` is the mean over t != t', ``control``
               without any exchange, ``what`` the positions. ``same``: t = t'.

What the file holds already is kept, so the same command continues. A network takes 2 to 4 minutes of one core.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import torch
from continued import ContinuedTable

from arith_erd.interp.activations import layers
from arith_erd.interp.causal import CausalTask
from arith_erd.interp.dose import doses
from arith_erd.interp.subject import Subject, load_checkpoint, load_references, load_runs
from arith_erd.interp.transfer import transfers
from arith_erd.models.references import REFERENCES
from arith_erd.tasks import Add

COLUMNS = ("network", "seed", "test", "method", "what", "site", "n", "value", "control")
DOSED = ("slope", "leace", "centroids", "das")
TRANSFERRED = ("slope", "das", "whole")
Row = tuple[str, str, str, str, int, float, float]


def subjects(name: str, place: str) -> list[Subject]:
    """The networks that an argument names."""
    if name in REFERENCES:
        return load_references(name, [int(place)], Add())
    if Path(place).is_dir():
        return [subject for _, subject in load_runs(place)]
    return [load_checkpoint(place, Add())]


def dosed(subject: Subject, pairs: CausalTask) -> Iterator[Row]:
    """Whole answers that follow, at the best site of each method and dose."""
    sites = layers(subject.network)
    sites = [site for site in sites if site.startswith("enc.")][-1:] + [s for s in sites if s.startswith("dec.")]
    made = doses(subject.network, pairs, sites, DOSED, (1, 8, 64), 64, prefixes=("target",), random=2)
    for (method, delta), rows in pd.DataFrame(made).groupby(["method", "delta"], sort=False):
        best = rows.loc[rows["answer"].idxmax()]
        yield "dose", method, str(delta), best["site"], best["n"], best["answer"], max(best["random"], best["floor"])


def transferred(subject: Subject, pairs: CausalTask, site: str) -> Iterator[Row]:
    """Answers with the bit of the transferred sum."""
    made = pd.DataFrame(transfers(subject.network, pairs, [site], TRANSFERRED, 200))
    made = made[made["pair"] == "other"]
    apart = made["source"] != made["position"]
    for what, chosen in (("elsewhere", made[apart]), ("same", made[~apart])):
        for method, rows in chosen.groupby("method", sort=False):
            yield "transfer", method, what, site, rows["n"].iloc[0], rows["iia"].mean(), rows["floor"].mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--site", default="dec.4", help="a layer of the decoder, for transfers")
    parser.add_argument("networks", nargs="+", help="NAME=RUN, NAME=WEIGHTS or REFERENCE=VARIANT")
    given = parser.parse_args()
    torch.set_num_threads(1)
    pairs = CausalTask(Add())
    table = ContinuedTable(given.out, COLUMNS, ("network", "seed", "test", "site"))
    dosed_before = {key[:2] for key in table.done if key[2] == "dose"}

    def add(name: str, subject: Subject, rows: Iterator[Row]) -> None:
        table.add([name, subject.seed, *where, f"{value:.4f}", f"{control:.4f}"] for *where, value, control in rows)

    for argument in given.networks:
        name, _, place = argument.partition("=")
        for subject in subjects(name, place):
            key = (name, str(subject.seed))
            if key not in dosed_before:
                add(name, subject, dosed(subject, pairs))
            if (*key, "transfer", given.site) not in table.done:
                add(name, subject, transferred(subject, pairs, given.site))


if __name__ == "__main__":
    main()
