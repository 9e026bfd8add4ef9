"""In which layer does the answer become readable? The head applied to every layer (nostalgebraist's logit lens)."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, ClassVar

import pandas as pd
import torch

from ..errors import UserError
from ..interp.hooked import Hooked
from ..interp.interventions import Replace, Steer
from ..interp.sites import layers, require_sites
from ..plots.panels import HeatMaps
from .probe import IN_FILE, Count, Natural, NetworkProbe


class LogitLens(NetworkProbe):
    """The network's answers if a given layer of its decoder were the last one.

    A layer's embeddings replace those of the last layer, and the head's output is compared with the right token. A row
    is one answer position at one site: ``accuracy`` is the share of right tokens, ``probability`` the mean probability
    of the right token, ``agreement`` the share of tokens that equal the whole network's.
    """

    picture = HeatMaps("accuracy", "token", "site", title="right tokens, by layer")
    units: ClassVar[dict[str, str]] = {"accuracy": "accuracy", "agreement": "accuracy"}

    num_examples: Count | None = IN_FILE
    seed: Natural = IN_FILE

    def __post_init__(self) -> None:
        self.examples, known = self.task.examples().sample(self.num_examples, self.seed), self.models[0].sites
        require_sites(known, ["dec.1"], "probe=logit_lens: site")
        decoder = layers(known, "dec")
        self.last = decoder[-1]
        self.sites = [site for site in ("dec.1.resid_pre",) if site in known] + decoder

    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        self._require_whole_states(model)
        final_logits, cache = model.run_with_cache(self.examples, self.sites)
        head = model.resume_from(self.last, self.examples)
        completion = model.target_tokens(self.examples)  # (N, m)
        for site in self.sites:
            logits = head([Replace(self.last, None, cache[site])])  # (N, m, V)
            token = logits.argmax(-1)
            measures = {
                "accuracy": token == completion,
                "probability": logits.softmax(-1).gather(-1, completion[..., None]).squeeze(-1),
                "agreement": token == final_logits.argmax(-1),
            }
            means = pd.DataFrame({name: x.double().mean(0).tolist() for name, x in measures.items()})  # m rows
            for position, shares in enumerate(means.to_dict("records")):
                yield {"site": site, "position": position} | shares

    def _require_whole_states(self, model: Hooked) -> None:
        """Raise a `UserError` if a layer is only a branch: another path leads from a lower layer to the logits."""
        few = self.task.examples().sample(8, self.seed)
        logits, cache = model.run_with_cache(few, self.sites)
        generator = torch.Generator().manual_seed(0)
        for below, site in pairwise(self.sites):
            noise = torch.randn(cache[below].shape, generator=generator).to(cache[below]) * cache[below].std()
            held = model.run(few, [Steer(below, None, noise), Replace(site, None, cache[site])])
            if not torch.allclose(held, logits, rtol=1e-3, atol=1e-3):
                problem = f"is not the whole state of {model.name}: with {site} fixed, its logits still follow {below}"
                raise UserError(f"site={site}: {problem}; expected a module that everything later depends on")

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(token=rows["position"].map(dict(enumerate(self.task.answer_names))))
