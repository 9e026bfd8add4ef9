"""Cards of ``probe=mechanism`` in the report: their files are checked, and the number of seeds is bounded."""

from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from ..errors import UNREADABLE, excerpt
from ..mechanism.card import NEAR, Card
from ..plots.mechanism import draw_mechanism
from ..plots.style import plain_text

MAX_SEEDS, MAX_NOTES = 20, 40  # of one card
KEY = {"seed": int, "test": str, "component": str, "site": str, "position": str}


@dataclass(frozen=True)
class ShownCard:
    """The part of ``card.json`` and ``rows.csv`` that a page can show.

    Attributes:
        title: the network and its verdict.
        table: a row for each seed.
        notes: sentences: what is left out, then those of each seed.
        card: with the seeds that are shown; ``rows``: of the probe, for the figure.
    """

    title: str
    table: pd.DataFrame
    notes: list[str]
    card: Card
    rows: pd.DataFrame

    @classmethod
    def read(cls, text: str, rows: pd.DataFrame) -> "ShownCard":
        """The card of rows that lie beside it; a `ValueError` if either is not that of a card."""
        card = Card.from_json(text)
        shown = card.model_copy(update={"seeds": card.seeds[:MAX_SEEDS]})
        texts = [name for name, kind in KEY.items() if kind is str]
        try:
            rows = rows[[*KEY, "value"]].astype(dict.fromkeys(texts, object)).fillna(dict.fromkeys(texts, ""))
            rows = rows.astype({**KEY, "value": float})
        except UNREADABLE as error:
            old = "rows.csv: not of this card; if it is of an older version, ask probe=mechanism again"
            raise ValueError(f"{old} ({type(error).__name__}: {excerpt(str(error))})") from error
        rows = rows[rows["seed"].isin([one.seed for one in shown.seeds])].drop_duplicates([*KEY], ignore_index=True)
        left = len(card.seeds) - len(shown.seeds)
        notes = [f"{left} more seeds are not shown"] if left else []
        return cls(card.title, shown.table(), [*notes, *shown.notes()][:MAX_NOTES], shown, rows)

    def draw(self) -> Figure:
        """The figure that the probe drew, without what is left out."""
        verdicts = {one.seed: one.verdict for one in self.card.seeds}
        with plain_text():
            expected, beside = self.card.expected_rows(), self.card.post_hoc()
            return draw_mechanism(self.rows, verdicts, expected, NEAR, self.title, beside)
