"""Is the encoder a table? Replace its output by the mean for each token at each position."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch

from ..errors import UserError
from ..interp.hooked import Hooked
from ..interp.interventions import Replace
from ..interp.sites import layers
from ..interp.slopes import token_means
from ..plots.curves import EpochCurves
from ..plots.panels import HeatMaps
from .probe import IN_FILE, Count, Natural, NetworkProbe, OneOrMore, select_sites


class EncoderTable(NetworkProbe):
    """Replace all positions of a site by the mean for their token. How many answers stay right?

    A row is a site and a ``token`` of the answer; ``all`` is the whole answer. The means are over the training pairs,
    or over all pairs if the split is unknown. ``accuracy`` is the share of ``n`` answers that are right with the means,
    ``no_intervention`` the share without them. For ``a + b`` of 7 bits the table has 29 vectors. A network that keeps
    its accuracy with it needs no information that the encoder mixes across positions.
    """

    units: ClassVar[dict[str, str]] = dict.fromkeys(("accuracy", "no_intervention"), "accuracy")
    picture = HeatMaps("accuracy", "token", "site", title="right answers after replacing a site by its token means")

    site: OneOrMore[str] | None = IN_FILE
    num_examples: Count | None = IN_FILE
    seed: Natural = IN_FILE

    def __post_init__(self) -> None:
        model = self.models[0]
        sites = layers(model.sites, "enc")[-1:] if self.site is None else self.site
        if not sites:
            raise UserError(f"probe=encoder_table: {model.name} has no encoder; expected an encoder-decoder")
        self.sites = select_sites(self.models, sites)

    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        table, split = self.task.examples(), model.provenance.split
        examples = table.sample(self.num_examples, self.seed)
        trained = table[~np.asarray(split(table))] if split else table
        trained_prompt = model.inputs(trained)[0]
        _, trained_cache = model.run_with_cache(trained, self.sites)
        logits, cache = model.run_with_cache(examples, self.sites)
        prompt, completion = model.inputs(examples)[0], model.target_tokens(examples)
        for site, x in cache.items():
            if not model.site_positions(site, x).hold_only_prompt(self.task):
                raise UserError(f"probe.site={site}: expected a site that holds only the prompt")
            means = token_means(trained_cache[site], trained_prompt, self.task.vocab_size)  # (P, V, C)
            x = means[torch.arange(prompt.shape[1]), prompt]  # (N, P, C)
            correct = [y.argmax(-1) == completion for y in (model.run(examples, Replace(site, None, x)), logits)]
            shares = [[float(y.all(1).double().mean()), *y.double().mean(0).tolist()] for y in correct]
            for token, accuracy, no_intervention in zip(["all", *self.task.answer_names], *shares, strict=True):
                row = {"site": site, "position": "all", "corruption": "token_mean", "token": token, "n": len(examples)}
                yield row | {"accuracy": accuracy, "no_intervention": no_intervention}

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        return EpochCurves.from_rows(rows, "accuracy", ["token"], unit="accuracy")

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        return pd.concat([rows, rows.assign(site="no intervention", accuracy=rows["no_intervention"])])
