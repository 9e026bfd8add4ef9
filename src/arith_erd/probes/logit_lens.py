"""In which layer does the answer become readable? The head applied to every layer (nostalgebraist's logit lens)."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pandas as pd
import torch
from matplotlib.figure import Figure

from ..errors import UserError
from ..interp.hooked import Hooked
from ..interp.interventions import Replace
from ..interp.sites import layers
from ..plots.style import heat_map, set_title, subplots
from .probe import Natural, Positive, Probe, in_text, sample_pairs


class LogitLens(Probe):
    """The network's answers if a given layer of its decoder were the last one.

    A layer's embeddings replace those of the last layer, and the head's output is compared with the right token. A row
    is one answer position at one site: ``accuracy`` is the share of right tokens, ``probability`` the mean probability
    of the right token, ``agreement`` the share of tokens that equal the whole network's.
    """

    columns = ("seed", "site", "position", "accuracy", "probability", "agreement")
    units: ClassVar[dict[str, str]] = {"accuracy": "accuracy", "agreement": "accuracy"}

    def __init__(self, models: Sequence[Hooked], pairs: Positive | None = 2048, seed: Natural = 0) -> None:
        self.models, self.task = models, models[0].task
        self.examples = sample_pairs(self.task, pairs, seed)
        known = models[0].sites
        decoder = [site for site in layers(known) if site.startswith("dec.")]
        if not decoder:
            raise UserError(f"probe=logit_lens: {models[0].name} has no decoder layers")
        self.last = decoder[-1]
        self.sites = [site for site in ("dec.1.resid_pre",) if site in known] + decoder

    @torch.no_grad()
    def rows(self) -> Iterator[dict[str, Any]]:
        for model in self.models:
            whole, cache = model.run_with_cache(self.examples, self.sites)
            head = model.resume_from(self.last, self.examples)
            completion = torch.as_tensor(self.examples.completion, device=whole.device)  # (N, m)
            for site in self.sites:
                logits = head([Replace(self.last, None, cache[site])])  # (N, m, V)
                token = logits.argmax(-1)
                probability = logits.softmax(-1).gather(-1, completion[..., None]).squeeze(-1)
                right, agreeing = token == completion, token == whole.argmax(-1)
                measures = [x.double().mean(0).tolist() for x in (right, probability, agreeing)]
                for position, values in enumerate(zip(*measures, strict=True)):
                    yield self.row(model.seed, site, position, *values)

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        return in_text(self._wide(rows), ".3f")

    def figure(self, rows: pd.DataFrame) -> Figure:
        wide = self._wide(rows)
        figure, ax = subplots(1.6 + 0.55 * max(len(wide.columns), 7), 1.0 + 0.42 * len(wide))
        heat_map(ax, wide, numbers=".2f")
        set_title(figure, self.task.name, "right tokens, by layer", rows)
        return figure

    def _wide(self, rows: pd.DataFrame) -> pd.DataFrame:
        wide = rows.pivot_table("accuracy", "site", "position", sort=False)
        return wide.set_axis(self.task.answer_names, axis=1)
