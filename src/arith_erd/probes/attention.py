"""Where does each attention head look?"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..errors import UserError
from ..interp.hooked import Hooked
from ..plots.curves import EpochCurves
from ..plots.style import INK, heat_map, set_title, subplots
from .probe import Natural, Positive, Probe, sample_pairs

CELL = 0.105  # inches, so that a name of 6 points fits beside each cell


class Attention(Probe):
    """The mean attention pattern of every head over a sample of pairs, under teacher forcing.

    A row is the attention from position ``query`` to position ``key``. A query is named by its token in an encoder, and
    by the token that it predicts in a decoder. ``weight`` is the mean over the pairs, and ``spread`` the standard
    deviation, which is large if a head's pattern depends on the operands. Weights sum to 1 over the keys.
    """

    columns = ("seed", "site", "head", "query", "key", "weight", "spread")

    def __init__(self, models: Sequence[Hooked], pairs: Positive | None = 1024, seed: Natural = 0) -> None:
        self.models, self.task = models, models[0].task
        self.examples = sample_pairs(self.task, pairs, seed)
        self.sites = [site for site in models[0].sites if site.endswith("pattern")]
        if not self.sites:
            raise UserError(f"probe=attention: {models[0].name} has no attention; expected a network with attention")

    def rows(self) -> Iterator[dict[str, Any]]:
        for model in self.models:
            for site in self.sites:  # one at a time, since the patterns of a sample are large
                _, cache = model.run_with_cache(self.examples, [site], include_prompt=True)
                pattern = cache[site].transpose(1, 2).double()  # (N, nh, T, S)
                mean, spread = pattern.mean(0).cpu().numpy(), pattern.std(0, correction=0).cpu().numpy()
                queries, keys = self._names(site, *mean.shape[1:])
                for (head, i, j), weight in np.ndenumerate(mean):
                    of_pairs = float(weight), float(spread[head, i, j])
                    yield self.row(model.seed, site, head + 1, queries[i], keys[j], *of_pairs)

    def _names(self, site: str, queries: int, keys: int) -> tuple[list[str], list[str]]:
        prompt, answer = self.task.prompt_names, self.task.answer_names
        given = ["<s>", *answer[:-1]]  # the decoder's input where it predicts ``answer``
        if site.startswith("enc."):
            return prompt, prompt
        if "cross" in site:
            return answer, prompt
        if keys == len(answer):
            return answer, given
        whole = [*prompt, *answer]  # in a decoder-only network, whose last layer has only the answer's queries
        return whole[-queries:], [*prompt, *given]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """For each head and answer token the key with most weight, if that is at least a quarter."""
        mean = rows.groupby(["site", "head", "query", "key"], sort=False)["weight"].mean().reset_index()
        best = mean.loc[mean.groupby(["site", "head", "query"], sort=False)["weight"].idxmax()]
        text = best["key"].where(best["weight"] >= 0.25, "-")
        last = self.task.answer_names
        shown = best.assign(text=text, site=best["site"].str.removesuffix(".pattern"))[best["query"].isin(last)]
        return shown.pivot(index=["site", "head"], columns="query", values="text").reindex(columns=last).reset_index()

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        """Sharpness of attention: the largest weight of each query, as a mean over the answer's positions and heads."""
        queries = rows[rows["query"].isin(self.task.answer_names) | rows["site"].str.startswith("enc.")]
        sharpest = queries.groupby(["seed", "site", "head", "query"], sort=False)["weight"].max().reset_index()
        sharpest["site"] = sharpest["site"].str.removesuffix(".pattern")
        return EpochCurves.of(sharpest, "weight", ["site"], label="largest attention weight")

    def figure(self, rows: pd.DataFrame) -> Figure:
        sites = list(rows["site"].unique())
        heads = sorted(rows["head"].unique())
        mean = rows.groupby(["site", "head", "query", "key"], sort=False)["weight"].mean()
        keys = {site: list(dict.fromkeys(of_site["key"])) for site, of_site in rows.groupby("site")}
        side = max(CELL * max(map(len, keys.values())), 1.5)
        figure, grid = subplots(
            max(side * len(heads) + 1, 7.4), side * len(sites) + 0.6, len(sites), len(heads), squeeze=False
        )
        for i, site in enumerate(sites):
            for j, head in enumerate(heads):
                table, ax = mean[site, head].unstack("key", sort=False)[keys[site]], grid[i, j]
                heat_map(ax, table)
                ax.tick_params(labelsize=6, pad=1)
                ax.tick_params(axis="x", rotation=90)
                if i + 1 < len(sites) and keys[site] == keys[sites[i + 1]]:
                    ax.set_xticks([])
                if j:
                    ax.set_yticks([])
            grid[i, 0].set_ylabel(site.removesuffix(".pattern"), fontsize=8, color=INK)
        for ax, head in zip(grid[0], heads, strict=True):
            ax.set_title(f"head {head}", fontsize=8, color=INK)
        set_title(figure, self.task.name, "mean attention, query (down) to key (across)", rows)
        return figure
