"""Where does each attention head look?"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from ..errors import UserError
from ..interp.hooked import Hooked
from ..plots.curves import EpochCurves
from ..plots.panels import HeatMaps
from .probe import IN_FILE, Count, Natural, NetworkProbe


class Attention(NetworkProbe):
    """The mean attention pattern of every head over a sample of pairs, under teacher forcing.

    A row is the attention from position ``query`` to position ``key``. A query in the prompt has its token's name; one
    in the answer has the name of the token that it predicts. ``head`` counts from 0, as in `Intervention.head`.
    ``weight`` is the mean over the pairs, and ``spread`` the standard deviation, which is large if a head's pattern
    depends on the operands. Weights sum to 1 over the keys.
    """

    picture = HeatMaps(
        *("weight", "key", "query", "panel"),
        title="mean attention, query (down) to key (across)",
        panels_per_row="head",
        number_format="",
        cell=(0.12, 0.12),  # so that a name of 6 points fits beside each cell
        font_size=6,
    )

    num_examples: Count | None = IN_FILE
    seed: Natural = IN_FILE

    def __post_init__(self) -> None:
        self.examples, model = self.task.examples().sample(self.num_examples, self.seed), self.models[0]
        self.sites = [site for site in model.sites if site.endswith("pattern")]
        if not self.sites:
            raise UserError(f"probe=attention: {model.name} has no attention; expected a network with attention")

    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        for site in self.sites:  # one at a time, since the patterns of a sample are large
            _, cache = model.run_with_cache(self.examples, [site], include_prompt=True)
            pattern = cache[site].transpose(1, 2).double()  # (N, nh, T, S)
            mean, spread = pattern.mean(0).cpu().numpy(), pattern.std(0, correction=0).cpu().numpy()
            queries, keys = self._names(site, *mean.shape[1:])
            for (head, i, j), weight in np.ndenumerate(mean):
                cell = {"site": site, "head": head, "query": queries[i], "key": keys[j]}
                yield cell | {"weight": float(weight), "spread": float(spread[head, i, j])}

    def _names(self, site: str, queries: int, keys: int) -> tuple[list[str], list[str]]:
        prompt, answer = self.task.prompt_names, self.task.answer_names
        if site.startswith("enc."):
            return prompt, prompt
        inputs = [*prompt, "<s>", *answer[:-1]]  # inputs of the positions that predict ``answer``
        return [*prompt, *answer][-queries:], prompt if "cross" in site else inputs[-keys:]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The key with the largest weight for each head and answer token, if that weight is at least a quarter."""
        mean = rows.groupby(["site", "head", "query", "key"], sort=False)["weight"].mean().reset_index()
        best = mean.loc[mean.groupby(["site", "head", "query"], sort=False)["weight"].idxmax()]
        text = best["key"].where(best["weight"] >= 0.25, "-")
        answer = self.task.answer_names
        shown = best.assign(text=text, site=best["site"].str.removesuffix(".pattern"))[best["query"].isin(answer)]
        return shown.pivot(index=["site", "head"], columns="query", values="text").reindex(columns=answer).reset_index()

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        names = rows["site"].str.removesuffix(".pattern")
        return rows.assign(site=names, panel=names + " " + rows["head"].astype(str))

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        """Sharpness of attention: the largest weight of each query, as a mean over positions and heads."""
        sharpest = self.shown(rows).groupby(["seed", "site", "head", "query"], sort=False)["weight"].max()
        return EpochCurves.from_rows(sharpest.reset_index(), "weight", ["site"], label="largest attention weight")
