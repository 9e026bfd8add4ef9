"""The library's amnesic probing, beside the accuracy that the paper reports (appendix D)."""

from dataclasses import replace

import numpy as np
import pandas as pd

from arith_erd.models import Transformer
from arith_erd.models.handcoded import is_handcoded_task
from arith_erd.plots.style import INK
from arith_erd.probes.amnesic import MARK_STYLES, Amnesic

PUBLISHED = 0.0013  # after two INLP iterations on the value at dec.3 of addition
MARK = {"published": ("published: 0.13%", {"color": INK, "marker": "x"})}
NOTE = "the paper (appendix D) reports that two INLP iterations on the value at dec.3 of addition leave an accuracy of "
NOTE += "0.13%; the authors' own released weights give 100% (paper/found/amnesic.md)"


class PaperAmnesic(Amnesic):
    """`Amnesic`, with a note on the published accuracy, and a mark at it if network and options are the paper's."""

    picture = replace(Amnesic.picture, marks=MARK_STYLES | MARK)

    def notes(self) -> list[str]:
        return [*super().notes(), *[NOTE] * ("value" in self.concepts and is_handcoded_task(self.task))]

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        networks = all(isinstance(model.network, Transformer) for model in self.models)
        of_paper = networks and self.iterations == 2 and is_handcoded_task(self.task)
        return with_published(super().shown(rows), of_paper)


def with_published(rows: pd.DataFrame, of_paper: bool) -> pd.DataFrame:
    """Add the published accuracy to the row of the erasure that the paper reports, NaN to the others."""
    reported = of_paper & (rows["site"] == "dec.3") & (rows["concept"] == "value") & (rows["method"] == "inlp")
    return rows.assign(published=np.where(reported, PUBLISHED, np.nan))
