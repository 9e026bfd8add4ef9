"""Which variable does each position pass to later layers? Patch it from another run, and read the answer."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from ..config.causal_models import CausalModelSpec, build_causal_model
from ..digits import Array
from ..errors import UserError
from ..interp.causal_model import distinguishable_variables, require_distinguishable
from ..interp.counterfactuals import (
    CounterfactualDataset,
    FamilySpec,
    default_families,
    parse_families,
    sample_sources,
)
from ..interp.hooked import Hooked, finite_cache
from ..interp.interventions import Replace
from ..plots.panels import HeatMaps
from ..tasks import Examples
from .patching import position_panels
from .probe import IN_FILE, Count, Natural, NetworkProbe, OneOrMore, as_list, format_cells, select_sites, weighted_means


class InterchangeProbe(NetworkProbe):
    """Replace the activation at a position of a site by a source run's. How does the answer change?

    A row is a site, a position, a ``family`` of pairs and the ``token`` of the answer that is read, as in `Patching`.
    Base and source are a pair of the family; a pair of ``carry`` differs only in the carry. At an answer position we
    read the token that it predicts, elsewhere every token. ``n`` counts the answers. ``flipped`` is the share of
    answers that change. ``iia_VARIABLE`` (interchange intervention accuracy) is the share of answers that a variable of
    the causal model predicts. It says what the position passed on: a high ``iia_carry`` only the carry into t,
    ``iia_sum`` all that determines bit t, ``iia_none`` nothing, ``iia_token`` (at sites with the prompt) its token.
    """

    units: ClassVar[dict[str, str]] = {"flipped": "accuracy"}
    picture = HeatMaps(
        *("flipped", "position", "site", "panel"),
        title="answers that change when one position is patched from another run",
        cell=(0.45, 0.33),
        panels_per_row="stack",
    )

    site: OneOrMore[str] | None = IN_FILE
    variable: OneOrMore[str] | None = IN_FILE
    families: Annotated[Mapping[str, FamilySpec], Field(min_length=1)] | None = IN_FILE
    num_examples: Count | None = IN_FILE
    seed: Natural = IN_FILE
    causal_model: CausalModelSpec = IN_FILE

    def __post_init__(self) -> None:
        self.sites = select_sites(self.models, self.site)
        self.hypothesis = model = build_causal_model(self.task, self.causal_model, "probe.causal_model")
        requested = [] if self.variable is None else as_list(self.variable)
        require_distinguishable(model, requested, "probe.variable")
        self.variables = requested or distinguishable_variables(model)
        self.measures = ["flipped", *(f"iia_{name}" for name in ("none", *self.variables, "token"))]
        self.columns = ("seed", "site", "position", "family", "token", "n", *self.measures)
        own = self.families and parse_families(model, self.families, "probe.families")
        self.drawn_families = own or default_families(model, requested or None)
        rng = np.random.default_rng(self.seed)
        bases = rng.integers(self.task.size, size=self.num_examples or self.task.size)
        self.base = model.examples[bases]
        self.drawn = [*self._draw_sources(bases, rng)]
        drawn = {name for name, *_ in self.drawn}
        no_pair = f"none of {len(bases)} bases has a pair with"
        self.missing = {name: f"{no_pair} {x}" for name, x in self.drawn_families.items() if name not in drawn}
        wanted = [name for name in own or requested if name in self.drawn_families]
        if wanted and drawn.isdisjoint(wanted):
            key, expected = "families" if own else "variable", "another one, or more probe.num_examples"
            raise UserError(f"probe.{key}={wanted[0]}: {self.missing[wanted[0]]}; expected {expected}")
        if not own:
            alone = "no other variable affects the answer together with it, so there is nothing to keep equal"
            self.missing |= {name: alone for name in requested if name not in self.drawn_families}

    def _draw_sources(
        self, bases: Array, rng: np.random.Generator
    ) -> Iterator[tuple[str, CounterfactualDataset, dict[str, Array]]]:
        """The pairs of each family at each digit, and tokens (N, m) that the answers may equal, by measure.

        A base without a source is paired with itself and not counted. Digits without any source are left out.
        """
        model, task = self.hypothesis, self.task
        for name, family in self.drawn_families.items():
            for t in range(task.width) if family.vary else [None]:
                drawn = sample_sources(model, family, t, bases, rng)
                if (drawn < 0).all():
                    continue
                pairs = CounterfactualDataset(model, bases, np.where(drawn < 0, bases, drawn), family, t)
                answers = [model.interchange_by_digit(self.base, pairs.source_examples, x) for x in self.variables]
                keys = [f"iia_{variable}" for variable in ("none", *self.variables)]
                yield name, pairs, dict(zip(keys, [self.base.completion, *map(task.to_tokens, answers)], strict=True))

    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        forward = {site: model.resume_from(site, self.base) for site in self.sites}
        base_tokens = model.run(self.base).argmax(-1).cpu().numpy()  # (N, m)
        for family, pairs, expected_tokens in self.drawn:
            digit, has_source, source = pairs.digit, pairs.base != pairs.source, pairs.source_examples
            scored = range(self.task.width) if digit is None else [self.task.answer_positions[digit]]
            for site, x in finite_cache(model, source, self.sites).items():
                positions = model.site_positions(site, x)
                own_token = len(positions.scored(0, self.task)) == 1
                for name, position in positions.by_name(self.task).items():
                    if own_token and position not in scored:
                        continue
                    tokens = forward[site](Replace(site, name, x[:, position])).argmax(-1).cpu().numpy()
                    matches = {key: tokens == expected for key, expected in expected_tokens.items()}
                    matches["flipped"] = tokens != base_tokens
                    if name in self.task.prompt_names:
                        matches["iia_token"] = tokens == self._after_token(str(name), source)
                    shares = {key: y[has_source].mean(0) for key, y in matches.items()}
                    for t in [position] if own_token else scored:
                        row = {"site": site, "position": name, "family": family}
                        row |= {"token": self.task.answer_names[t], "n": int(has_source.sum())}
                        yield row | {key: float(shares[key][t]) if key in shares else np.nan for key in self.measures}

    def _after_token(self, name: str, source: Examples) -> Array:
        """Tokens (N, m) of the answers with one token of the prompt taken from the source."""
        task, model = self.task, self.hypothesis
        operand, digit = task.prompt_places[task.prompt_names.index(name)]
        if digit < 0:  # an operator
            return self.base.completion
        return task.to_tokens(model.interchange(self.base, source, model.roots[operand], digit))

    def notes(self) -> list[str]:
        limit = "patching a whole activation cannot distinguish a variable from others that together determine it"
        can = "probe=subspaces and dose" if self.hypothesis.answer_variable else "probe=subspaces"
        return [*(f"no family for {name}: {why}" for name, why in self.missing.items()), f"{limit}; {can} can"]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        decoder = rows[rows["site"].str.startswith("dec.")]
        means = weighted_means(decoder if len(decoder) else rows, ["site", "family"], self.measures)
        return format_cells(means.dropna(axis=1, how="all").rename(columns=lambda name: name.removeprefix("iia_")))

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        families = [x for x in self.drawn_families.items() if x[1].vary and x[1].keep]
        titles = {name: f"{name} ({', '.join(family.keep)} the same)" for name, family in families}
        return position_panels(self.task, rows.replace({"family": titles}), "family", "flipped")
