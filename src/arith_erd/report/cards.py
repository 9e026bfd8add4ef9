"""Cards of ``probe=mechanism`` in the report, checked and bounded: their files may be a stranger's."""

from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from ..errors import UNREADABLE, excerpt
from ..mechanism.card import Card
from ..plots.mechanism import draw_mechanism
from ..plots.style import plain_text

MAX_SEEDS, MAX_SITES, MAX_BITS, MAX_ALGORITHMS, MAX_NOTES = 20, 60, 32, 8, 40  # of one card
KEY = {"seed": int, "test": str, "component": str, "control": str, "dose": str, "site": str, "position": str}


@dataclass(frozen=True)
class ShownCard:
    """The part of ``card.json`` and ``rows.csv`` that a page can show.

    Attributes:
        title: the network and its verdict.
        table: a row for each seed.
        notes: sentences: what is left out, then those of each seed.
        card: bounded.
        rows: of the probe, for the figure.
    """

    title: str
    table: pd.DataFrame
    notes: list[str]
    card: Card
    rows: pd.DataFrame

    @classmethod
    def read(cls, text: str, rows: pd.DataFrame) -> "ShownCard":
        """The card of rows that lie beside it.

        Raises:
            ValueError: if either is not that of a card.
        """
        card = Card.from_json(text)
        seeds = tuple(one.model_copy(update={"bits": one.bits[:MAX_BITS]}) for one in card.seeds[:MAX_SEEDS])
        expected = {
            name: {component: values[:MAX_BITS] for component, values in signature.items()}
            for name, signature in [*card.expected.items()][:MAX_ALGORITHMS]
        }
        bounded = card.model_copy(update={"seeds": seeds, "expected": expected})
        try:
            drawn, notes = _bounded(rows, [one.seed for one in seeds])
        except UNREADABLE as error:
            old = "rows.csv: not of this card; if it is of an older version, ask probe=mechanism again"
            raise ValueError(f"{old} ({type(error).__name__}: {excerpt(str(error))})") from error
        if left := len(card.seeds) - len(seeds):
            notes.append(f"{left} more seeds are not shown")
        sites = [site for site in dict.fromkeys(drawn["site"]) if site]
        return cls(card.title, bounded.table(sites), [*notes, *bounded.notes()][:MAX_NOTES], bounded, drawn)

    def draw(self) -> Figure:
        """The figure that the probe drew, without what is left out."""
        verdicts = {one.seed: one.verdict for one in self.card.seeds}
        with plain_text():
            return draw_mechanism(self.rows, verdicts, self.card.expected_rows(), self.title)


def _bounded(rows: pd.DataFrame, seeds: list[int]) -> tuple[pd.DataFrame, list[str]]:
    """The rows of these seeds that a figure can show, each once; and what it does not show."""
    texts = [name for name, kind in KEY.items() if kind is str]
    rows = rows[[*KEY, "value"]].astype(dict.fromkeys(texts, object)).fillna(dict.fromkeys(texts, ""))
    rows = rows.astype({**KEY, "value": float})
    rows = rows[rows["seed"].isin(seeds)].drop_duplicates([*KEY], ignore_index=True)
    bit = pd.to_numeric(rows["position"], errors="coerce")
    rows = rows[bit.isna() | bit.isin(range(MAX_BITS))].assign(value=rows["value"].clip(-1, MAX_BITS))
    sites = [*dict.fromkeys(rows["site"])]
    notes = [f"{len(sites) - MAX_SITES} more sites are not shown"] if len(sites) > MAX_SITES else []
    return rows[rows["site"].isin(sites[:MAX_SITES])], notes
