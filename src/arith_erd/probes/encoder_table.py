"""Is the encoder a table? Replace its output by its mean for each token at each position."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from ..errors import UserError
from ..interp.erasure import token_means
from ..interp.hooked import Hooked
from ..interp.interventions import Replace
from ..interp.sites import layers
from ..plots.style import BLUE, ORANGE, headline, legend_below, set_title, subplots, tidy
from .probe import Probe


class EncoderTable(Probe):
    """Accuracy with a table in place of the encoder: one vector for each token and position, 29 in ``a + b`` of 7 bits.

    The vectors are means of the encoder's output over the training pairs, or over all pairs if the split is unknown. A
    network that keeps its accuracy needs no information that the encoder mixes across positions.

    A row is the share of pairs for which an answer ``token`` is right under teacher forcing; for ``all``, every token.
    ``encoder`` is ``own`` for the encoder's own output, and ``table`` for the vectors.

    Raises:
        UserError: for a network without encoder layers.
    """

    columns = ("seed", "encoder", "token", "vectors", "accuracy", "n")
    units: ClassVar[dict[str, str]] = {"accuracy": "accuracy"}
    across = ("encoder",)

    def __init__(self, models: Sequence[Hooked]) -> None:
        self.models, self.task = models, models[0].task
        encoder = [site for site in layers(models[0].sites) if site.startswith("enc.")]
        if not encoder:
            raise UserError(f"probe=encoder_table: {models[0].name} has no encoder; expected an encoder-decoder")
        self.site = encoder[-1]

    @torch.no_grad()
    def rows(self) -> Iterator[dict[str, Any]]:
        examples = self.task.examples()
        completion = torch.as_tensor(examples.completion)
        for model in self.models:
            logits, cache = model.run_with_cache(examples, [self.site])
            trained = ~model.split(examples) if model.split else np.ones(len(examples), dtype=bool)
            x, prompt = cache[self.site], torch.as_tensor(examples.prompt, device=cache[self.site].device)
            means = token_means(x[trained], prompt[trained], self.task.vocab_size)  # (P, V, C)
            table = means[torch.arange(prompt.shape[1]), prompt]  # (N, P, C)
            vectors = sum(len(column.unique()) for column in prompt.T)
            replaced = model.run(examples, [Replace(self.site, None, table)])
            for name, found in (("own", logits), ("table", replaced)):
                right = found.argmax(-1).cpu() == completion  # (N, m)
                shares = [float(right.all(1).double().mean()), *right.double().mean(0).tolist()]
                for token, share in zip(["all", *self.task.answer_names], shares, strict=True):
                    yield self.row(model.seed, name, token, vectors, share, len(examples))

    def figure(self, rows: pd.DataFrame) -> Figure:
        figure, ax = subplots(6.4, 4)
        tidy(ax, "y")
        mean = rows.groupby(["encoder", "token"], sort=False)["accuracy"].mean()
        tokens = [*dict.fromkeys(rows["token"])]
        for i, (name, color) in enumerate((("own", BLUE), ("table", ORANGE))):
            label = "its own output" if name == "own" else f"{rows['vectors'].iloc[0]} vectors"
            ax.bar(np.arange(len(tokens)) + 0.36 * i - 0.18, mean[name][tokens], 0.34, color=color, label=label)
        ax.set_xticks(range(len(tokens)), tokens)
        ax.set(xlabel="answer token", ylabel="right answers")
        headline(ax, "Encoder replaced by a table")
        set_title(figure, self.task.name, "is the encoder a table?", rows)
        legend_below(figure)
        return figure
