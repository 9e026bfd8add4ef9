"""What does an activation pass on? Replace it by another run's, or by its mean, and read the answer."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from ..digits import Array
from ..errors import UserError
from ..interp.causal_model import CausalModel, CausalModelSpec, build_causal_model
from ..interp.families import (
    Family,
    FamilySpec,
    default_families,
    distinguishable_variables,
    parse_families,
    require_distinguishable,
    sample_sources,
)
from ..interp.hooked import Hooked
from ..interp.interchange import finite_cache, scored_positions
from ..interp.interventions import Replace
from ..interp.sites import holds_prompt, layers, position_names
from ..interp.slopes import token_means
from ..plots.curves import EpochCurves
from ..plots.panels import HeatMaps
from ..plots.tables import summary_table
from ..tasks import Examples, Task
from .probe import Count, Natural, NetworkProbe, OneOrMore, as_list, format_cells, select_sites, weighted_means

MIN_CLEAN_ACCURACY = 0.5  # accuracy on clean examples below which a note is printed
ALL = "all"
LAYOUT: dict[str, Any] = {"panels_per_row": "stack", "size": (0.45, 0.33)}
RECOVERED = HeatMaps(
    *("recovered", "position", "site", "panel"),
    title="share of the logit difference that one position recovers",
    numbers="z.2f",
    color_range=(-0.5, 0.5),  # a patch can also move the logits the wrong way
    cmap="RdBu",
    **LAYOUT,
)
PICTURES = {
    **dict.fromkeys(("bit", "pair"), RECOVERED),
    "family": HeatMaps(
        *("flipped", "position", "site", "panel"),
        title="answers that change when one position is patched from another run",
        **LAYOUT,
    ),
    "token_mean": HeatMaps(
        "accuracy", "answer", "site", title="right answers with the mean for each token in place of a site"
    ),
}


@dataclass(frozen=True, eq=False)
class SourcePairs:
    """A source for each of N bases, and tokens (N, m) that the answers may equal, by measure."""

    family: str
    source: Examples
    valid: Array  # (N, m), bool
    positions: Sequence[int]  # tokens of the answer that are read
    expected_tokens: Mapping[str, Array]

    def difference(self, logits: Tensor, base: Examples) -> Tensor:
        """Logits (N, m, V) of the source's tokens minus those of the base's, summed where answers count: (m,)."""
        ends = (torch.as_tensor(x.completion, device=logits.device)[..., None] for x in (self.source, base))
        clean, corrupted = (logits.gather(-1, tokens).squeeze(-1) for tokens in ends)
        return ((clean - corrupted).double() * torch.as_tensor(self.valid, device=logits.device)).sum(0)


class Patching(NetworkProbe):
    """Replace the activation at a position of a site by one from a ``source``. What becomes of the answer?

    A row is a site, a position, a family of pairs and the ``answer`` token that is read. Positions are named after the
    tokens of the prompt that they hold, or after those of the answer that they predict. ``n`` answers count.

    - ``bit``, ``pair``: the source is a clean input, the base the same with one bit of the operands flipped (in other
      bases, one digit changed), or with other operands. Only answers that differ count. Their logit difference is that
      of the clean token minus that of the corrupted one. ``recovered`` is sum(patched - corrupted) / sum(clean -
      corrupted) of these differences: 0 if the patch changes nothing, 1 if it restores the clean difference.
      ``flipped`` is the share of answers that become the clean ones.
    - ``family``: base and source are a pair of a family; those of ``carry`` differ in the carry alone. At a site with
      the answer's positions the token that the position predicts is read, elsewhere each token. ``flipped`` is the
      share of answers that change. ``iia_VARIABLE`` (interchange intervention accuracy) is the share of answers that a
      variable of the causal model predicts. If ``iia_carry`` is high, the position passed on only the carry into t; if
      ``iia_sum`` is, everything that determines bit t; if ``iia_none`` is, nothing; if ``iia_token`` is (at sites with
      the prompt), its token.
    - ``token_mean``: all positions get the mean for their token, over the training pairs, or over all pairs if the
      split is unknown. ``accuracy`` is the share of right answers, ``no_intervention`` that of the network itself, and
      ``all`` the share right in every token. A network that keeps its accuracy with such a table in place of its
      encoder, 29 vectors in ``a + b`` of 7 bits, needs no information that the encoder mixes across positions.

    Args:
        site: one, a list of them, or ``all`` layers; None for the middle of the decoder, for ``token_mean`` the end of
            the encoder.
        pairs: number of base runs, the same runs for every site, position and family; None for all examples.
        variable: a variable of the causal model or a list; None for all that predict different answers.
        families: name -> the variables that differ between the runs of a pair (``vary``) and those that are equal
            (``keep``); None for one family for each variable, in which it alone differs.
        causal_model: a hypothesis of yours (`interp.causal_model.build_causal_model`); None for the task's own.
    """

    picture: HeatMaps
    units: ClassVar[dict[str, str]] = dict.fromkeys(("flipped", "accuracy", "no_intervention"), "accuracy")

    def __init__(
        self,
        models: Sequence[Hooked],
        source: Literal["bit", "pair", "family", "token_mean"] = "bit",
        site: OneOrMore[str] | None = "all",
        pairs: Count | None = 256,
        seed: Natural = 0,
        variable: OneOrMore[str] | None = None,
        families: Annotated[Mapping[str, FamilySpec], Field(min_length=1)] | None = None,
        causal_model: CausalModelSpec = None,
    ) -> None:
        super().__init__(models)
        self.source, self.picture = source, PICTURES[source]
        for key, given in (("variable", variable), ("families", families), ("causal_model", causal_model)):
            if given is not None and source != "family":
                raise UserError(f"probe.{key}: expected only with probe.source=family; received source={source}")
        if source == "token_mean" and site is None:
            site = layers(models[0].sites, "enc")[-1:]
            if not site:
                accepted = "expected an encoder-decoder"
                raise UserError(f"probe.source=token_mean: {models[0].name} has no encoder; {accepted}")
        self.sites = select_sites(models, site)
        if source == "family":
            self.causal_model = model = build_causal_model(self.task, causal_model, "probe.causal_model")
            variable_names = None if variable is None else as_list(variable)
            if variable_names:
                require_distinguishable(model, variable_names, "probe.variable")
            own = None if families is None else parse_families(model, families, "probe.families")
            self.families = own or default_families(model, variable_names)
            self.unpaired = [name for name in variable_names or () if not own and name not in self.families]
            variables = variable_names or distinguishable_variables(model)
            self.base, self.pairs = family_pairs(model, self.families, variables, pairs or self.task.size, seed)
            self.measures = ["flipped", *(f"iia_{name}" for name in ("none", *variables, "token"))]
        elif source == "token_mean":
            self.base, self.pairs = self.task.examples().sample(pairs, seed), []
            self.measures = ["accuracy", "no_intervention"]
        else:
            clean = self.task.examples().sample(pairs, seed)
            self.base = corrupt(self.task, clean, source, seed)
            differ, read = clean.completion != self.base.completion, range(self.task.answer_length)
            self.pairs = [SourcePairs(source, clean, differ, read, {"flipped": clean.completion})]
            self.measures = ["recovered", "flipped"]
        self.columns = ("seed", "site", "position", "family", "answer", "n", *self.measures)

    @torch.no_grad()
    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        yield from self._measure_token_means(model) if self.source == "token_mean" else self._measure_positions(model)

    def _measure_token_means(self, model: Hooked) -> Iterator[dict[str, Any]]:
        logits, cache = model.run_with_cache(self.base, self.sites)
        prompt, right = (torch.as_tensor(x, device=logits.device) for x in (self.base.prompt, self.base.completion))
        in_training = ~model.split(self.base) if model.split else np.ones(len(self.base), dtype=bool)
        for site, x in cache.items():
            if not holds_prompt(site, x.shape[1], self.task):
                raise UserError(f"probe.site={site}: expected a site that holds the prompt alone")
            means = token_means(x[in_training], prompt[in_training], self.task.vocab_size)  # (P, V, C)
            table = means[torch.arange(prompt.shape[1]), prompt]  # (N, P, C)
            correct = [y.argmax(-1) == right for y in (model.run(self.base, Replace(site, None, table)), logits)]
            shares = [[float(y.all(1).double().mean()), *y.double().mean(0).tolist()] for y in correct]
            for answer, *measured in zip([ALL, *self.task.answer_names], *shares, strict=True):
                row = {"site": site, "position": ALL, "family": self.source, "answer": answer, "n": len(right)}
                yield row | dict(zip(self.measures, measured, strict=True))

    def _measure_positions(self, model: Hooked) -> Iterator[dict[str, Any]]:
        forward = {site: model.resume_from(site, self.base) for site in self.sites}
        base_logits, family = model.run(self.base), self.source == "family"
        tensor = partial(torch.as_tensor, device=base_logits.device)
        for pairs in self.pairs:
            valid, n = tensor(pairs.valid), pairs.valid.sum(0)
            floor = pairs.difference(base_logits, self.base)
            ceiling = pairs.difference(model.run(pairs.source), self.base)
            for site, x in finite_cache(model, pairs.source, self.sites, include_prompt=not family).items():
                own_token = family and len(scored_positions(model, site, 0, x)) == 1
                for position, name in enumerate(position_names(site, x.shape[1], self.task)):
                    if own_token and position not in pairs.positions:
                        continue
                    logits = forward[site](Replace(site, name, x[:, position]))
                    tokens = logits.argmax(-1)
                    right = {measure: tokens == tensor(expected) for measure, expected in pairs.expected_tokens.items()}
                    if family:
                        right["flipped"] = tokens != base_logits.argmax(-1)
                    if family and name in self.task.prompt_names:
                        right["iia_token"] = tokens == tensor(self._after_token(str(name), pairs.source))
                    shares = {measure: (y & valid).sum(0).double() / tensor(n) for measure, y in right.items()}
                    shares["recovered"] = (pairs.difference(logits, self.base) - floor) / (ceiling - floor)
                    for t in [position] if own_token else pairs.positions:
                        row = {"site": site, "position": name, "family": pairs.family}
                        row |= {"answer": self.task.answer_names[t], "n": int(n[t])}
                        yield row | {key: float(shares[key][t]) if key in shares else np.nan for key in self.measures}

    def _after_token(self, name: str, source: Examples) -> Array:
        """Tokens (N, m) of the answers with one token of the prompt taken from the source."""
        match, operands = re.fullmatch(r"(\w)(\d+)", name), self.task.operand_names
        if not match or match[1] not in operands:  # an operator
            return self.base.completion
        root = self.causal_model.roots[operands.index(match[1])]
        return self.task.to_tokens(self.causal_model.interchange(self.base, source, root, int(match[2])))

    def notes(self) -> list[str]:
        if self.source == "family":
            why = "no other variable affects the answer beside it, so there is nothing to keep equal"
            limit = "patching a whole activation cannot distinguish a value from a carry and an xor passed on together"
            return [*(f"no family for {x}: {why}" for x in self.unpaired), f"{limit}; probe=subspaces and dose can"]
        right = {model.seed: model.accuracy(pairs.source) for model in self.models for pairs in self.pairs}
        why = "of the clean answers are right; clean and corrupted runs hardly differ, so recovered means little"
        low = {seed: accuracy for seed, accuracy in right.items() if accuracy < MIN_CLEAN_ACCURACY}
        return [f"seed {seed}: {accuracy:.0%} {why}" for seed, accuracy in low.items()]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        if self.source == "token_mean":
            return summary_table(rows, self.schema("", rows))
        if self.source != "family":
            return format_cells(100 * self.picture.pivot(self.shown(rows), "site").rename_axis("%"), "z.0f")
        decoder = rows[rows["site"].str.startswith("dec.")]
        means = weighted_means(decoder if len(decoder) else rows, ["site", "family"], self.measures)
        return format_cells(means.dropna(axis=1, how="all").rename(columns=lambda name: name.removeprefix("iia_")))

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        if self.source == "token_mean":
            return EpochCurves.of(rows, "accuracy", ["answer"], unit="accuracy")
        if self.source == "family":
            return super().epoch_curves(rows)
        largest = self.shown(rows).groupby(["seed", "site"], sort=False)["recovered"].max().reset_index()
        return EpochCurves.of(largest, "recovered", ["site"], label="largest recovery by one position")

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Means over answers, in a panel for each family and for the sites that hold the prompt alone, or more."""
        value, x = self.picture.value, self.picture.x
        if self.source == "token_mean":
            rows = pd.concat([rows, rows.assign(site="no intervention", accuracy=rows["no_intervention"])])
        means = weighted_means(rows, ["seed", "family", "site", x], [value]).dropna().reset_index()
        prompt = {*self.task.prompt_names}
        known = dict.fromkeys([ALL, *self.task.prompt_names, *self.task.answer_names])
        names = means.groupby("site")[x].agg(set)
        stacks = names.map(lambda n: "prompt" if n <= prompt else "answer" if n <= {*known} else "other")
        means = means.assign(stack=means["site"].map(stacks))
        cells = means[["stack", "site", x]].drop_duplicates()  # the same in the panels of all families
        means = means[["seed", "family"]].drop_duplicates().merge(cells, how="cross").merge(means, how="left")
        panel = means["family"].map(self._family_title) + ", " + means["stack"]
        return means.assign(panel=panel, **{x: pd.Categorical(means[x], [*known | dict.fromkeys(means[x])])})

    def _family_title(self, name: str) -> str:
        kept = ", ".join(self.families[name].keep) if self.source == "family" and self.families[name].vary else ""
        return name + (f" ({kept} the same)" if kept else "")


def corrupt(task: Task, clean: Examples, corruption: str, seed: int) -> Examples:
    """The corrupted partner of every clean example: one digit of one operand changed, or other operands."""
    generator = np.random.default_rng([seed, 1])
    if corruption == "pair":
        shift = generator.integers(1, task.size, size=len(clean))  # never the operands themselves
        index = np.ravel_multi_index(tuple(clean.operands.T), task.shape)
        return task.examples(*np.unravel_index((index + shift) % task.size, task.shape))
    operands = clean.operands.copy()
    undecided = np.arange(len(clean))
    while len(undecided):  # draw again if the change leaves the task's range, as from 96 to 97 modulo 97
        operand, place = np.divmod(generator.integers(task.num_operands * task.bits, size=len(undecided)), task.bits)
        old, unit = clean.operands[undecided, operand], task.base**place
        digit = old // unit % task.base
        changed = (digit + generator.integers(1, task.base, size=len(undecided))) % task.base
        new = old + (changed - digit) * unit
        in_range = new < task.limit
        operands[undecided[in_range], operand[in_range]] = new[in_range]
        undecided = undecided[~in_range]
    return task.examples(*operands.T)


def family_pairs(
    model: CausalModel, families: Mapping[str, Family], variables: Sequence[str], count: int, seed: int
) -> tuple[Examples, list[SourcePairs]]:
    """Bases, and for every family their sources, at each digit of the answer at which there are any."""
    rng, task = np.random.default_rng(seed), model.task
    base, pairs = rng.integers(task.size, size=count), []
    bases = model.examples[base]
    for name, family in families.items():
        for t in range(task.width) if family.vary else [None]:
            drawn = sample_sources(model, family, t, base, rng)
            found = drawn >= 0
            if not found.any():
                continue
            source = model.examples[np.where(found, drawn, base)]
            digits = {f"iia_{x}": model.interchange_by_digit(bases, source, x) for x in variables}
            expected = {"iia_none": bases.completion} | {x: task.to_tokens(y) for x, y in digits.items()}
            read = range(task.width) if t is None else [task.answer_positions[t]]
            pairs.append(SourcePairs(name, source, np.repeat(found[:, None], task.width, axis=1), read, expected))
    return bases, pairs
