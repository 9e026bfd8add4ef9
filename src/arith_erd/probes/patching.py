"""What does an activation pass on? Replace it, at one position, by that of another run, and read the answer."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from ..config.causal_models import CausalModelSpec, build_causal_model
from ..digits import Array
from ..errors import UserError
from ..interp.families import (
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
from ..interp.sites import position_names
from ..plots.curves import EpochCurves
from ..plots.panels import HeatMaps
from ..tasks import Examples, Task
from .probe import Count, Natural, NetworkProbe, OneOrMore, as_list, format_cells, select_sites, weighted_means

MIN_CLEAN_ACCURACY = 0.5  # accuracy on clean examples below which a note is printed
LAYOUT: dict[str, Any] = {"panels_per_row": "stack", "size": (0.45, 0.33)}  # of `position_panels`


class Patching(NetworkProbe):
    """Replace the activation at a position of a site in a corrupted run by that of the clean run.

    A row is a site, a position, the ``source`` (in the column ``family``) and the ``answer`` token that is read.
    Positions are named after the tokens of the prompt that they hold, or after those of the answer that they predict.
    Only the ``n`` answers count whose clean and corrupted tokens differ. Their logit difference is that of the clean
    token minus that of the corrupted one. ``recovered`` is sum(patched - corrupted) / sum(clean - corrupted) of these
    differences: 0 if the patch changes nothing, 1 if it restores the clean difference. ``flipped`` is the share of
    answers that become the clean ones.

    Args:
        source: ``bit`` corrupts one bit of the operands (in other bases, one digit), ``pair`` takes other operands.
        site: one, a list of them, or ``all`` layers; None for the middle of the decoder.
        pairs: number of clean examples; None for all.
    """

    columns = ("seed", "site", "position", "family", "answer", "n", "recovered", "flipped")
    units: ClassVar[dict[str, str]] = {"flipped": "accuracy"}
    picture = HeatMaps(
        *("recovered", "position", "site", "panel"),
        title="share of the logit difference that one position recovers",
        numbers="z.2f",
        color_range=(-0.5, 0.5),  # a patch can also move the logits the wrong way
        cmap="RdBu",
        **LAYOUT,
    )

    def __init__(
        self,
        models: Sequence[Hooked],
        source: Literal["bit", "pair"] = "bit",
        site: OneOrMore[str] | None = "all",
        pairs: Count | None = 256,
        seed: Natural = 0,
    ) -> None:
        super().__init__(models)
        self.source, self.sites = source, select_sites(models, site)
        self.clean = self.task.examples().sample(pairs, seed)
        self.corrupted = corrupt(self.task, self.clean, source, seed)

    @torch.no_grad()
    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        clean, corrupted = (torch.as_tensor(x.completion, device=model.device) for x in (self.clean, self.corrupted))
        differ = clean != corrupted  # (N, m)

        def difference(logits: Tensor) -> Tensor:  # (N, m, V) -> (m,), summed over the answers that count
            ends = [logits.gather(-1, tokens[..., None]).squeeze(-1) for tokens in (clean, corrupted)]
            return ((ends[0] - ends[1]).double() * differ).sum(0)

        floor, ceiling = difference(model.run(self.corrupted)), difference(model.run(self.clean))
        n = differ.sum(0)
        for site, x in finite_cache(model, self.clean, self.sites, include_prompt=True).items():
            forward = model.resume_from(site, self.corrupted)
            for position, name in enumerate(position_names(site, x.shape[1], self.task)):
                logits = forward(Replace(site, name, x[:, position]))
                recovered = (difference(logits) - floor) / (ceiling - floor)
                flipped = ((logits.argmax(-1) == clean) & differ).sum(0).double() / n
                for t, answer in enumerate(self.task.answer_names):
                    row = {"site": site, "position": name, "family": self.source, "answer": answer, "n": int(n[t])}
                    yield row | {"recovered": float(recovered[t]), "flipped": float(flipped[t])}

    def notes(self) -> list[str]:
        right = {model.seed: model.accuracy(self.clean) for model in self.models}
        why = "of the clean answers are right; clean and corrupted runs hardly differ, so recovered means little"
        return [f"seed {seed}: {share:.0%} {why}" for seed, share in right.items() if share < MIN_CLEAN_ACCURACY]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        return format_cells(100 * self.picture.pivot(self.shown(rows), "site").rename_axis("%"), "z.0f")

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        largest = self.shown(rows).groupby(["seed", "site"], sort=False)["recovered"].max().reset_index()
        return EpochCurves.of(largest, "recovered", ["site"], label="largest recovery by one position")

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        return position_panels(self.task, rows, "recovered")


def corrupt(task: Task, clean: Examples, corruption: str, seed: int) -> Examples:
    """The corrupted partner of every clean example: one digit of one operand changed, or other operands."""
    generator = np.random.default_rng([seed, 1])
    if corruption == "pair":
        shift = generator.integers(1, task.size, size=len(clean))  # never the operands themselves
        index = np.ravel_multi_index(tuple(clean.operands.T), task.shape)
        return task.examples(*np.unravel_index((index + shift) % task.size, task.shape))
    operands = clean.operands.copy()
    while len(rows := np.flatnonzero((operands == clean.operands).all(axis=1))):
        operand, place = np.divmod(generator.integers(task.num_operands * task.bits, size=len(rows)), task.bits)
        old, unit = operands[rows, operand], task.base**place
        digit = old // unit % task.base
        changed = (digit + generator.integers(1, task.base, size=len(rows))) % task.base
        new = old + (changed - digit) * unit
        operands[rows, operand] = np.where(new < task.limit, new, old)  # out of range, as 97 modulo 97: draw again
    return task.examples(*operands.T)


@dataclass(frozen=True, eq=False)
class FamilyPairs:
    """A source for each of N bases, and tokens (N, m) that the answers may equal, by measure."""

    family: str
    source: Examples
    found: Array  # rows of the bases with a source in the family; each of the others is its own
    positions: Sequence[int]  # tokens of the answer that are read
    expected_tokens: Mapping[str, Array]


class InterchangeInterventions(NetworkProbe):
    """Replace the activation at a position of a site by that of a source run. What becomes of the answer?

    A row is a site, a position, a ``family`` of pairs and the ``answer`` token that is read, named as in `Patching`.
    Base and source are a pair of the family; those of ``carry`` differ in the carry alone. At a site with the answer's
    positions the token that the position predicts is read, elsewhere each token. ``n`` answers count. ``flipped`` is
    the share of answers that change. ``iia_VARIABLE`` (interchange intervention accuracy) is the share of answers that
    a variable of the causal model predicts. If ``iia_carry`` is high, the position passed on only the carry into t; if
    ``iia_sum`` is, everything that determines bit t; if ``iia_none`` is, nothing; if ``iia_token`` is (at sites with
    the prompt), its token.

    Args:
        site: one, a list of them, or ``all`` layers; None for the middle of the decoder.
        variable: a variable of the causal model or a list; None for all that predict different answers.
        families: name -> the variables that differ between the runs of a pair (``vary``) and those that are equal
            (``keep``); None for one family for each variable, in which it alone differs.
        pairs: number of base runs, the same runs for every site, position and family; None for as many as examples.
        causal_model: a hypothesis of yours (`config.causal_models.build_causal_model`); None for the task's own.
    """

    units: ClassVar[dict[str, str]] = {"flipped": "accuracy"}
    picture = HeatMaps(
        *("flipped", "position", "site", "panel"),
        title="answers that change when one position is patched from another run",
        **LAYOUT,
    )

    def __init__(
        self,
        models: Sequence[Hooked],
        site: OneOrMore[str] | None = "all",
        variable: OneOrMore[str] | None = None,
        families: Annotated[Mapping[str, FamilySpec], Field(min_length=1)] | None = None,
        pairs: Count | None = 64,
        seed: Natural = 0,
        causal_model: CausalModelSpec = None,
    ) -> None:
        super().__init__(models)
        self.sites = select_sites(models, site)
        self.causal_model = model = build_causal_model(self.task, causal_model, "probe.causal_model")
        requested = [] if variable is None else as_list(variable)
        require_distinguishable(model, requested, "probe.variable")
        own = families and parse_families(model, families, "probe.families")
        self.families = own or default_families(model, requested or None)
        self.variables = requested or distinguishable_variables(model)
        self.measures = ["flipped", *(f"iia_{name}" for name in ("none", *self.variables, "token"))]
        self.columns = ("seed", "site", "position", "family", "answer", "n", *self.measures)
        rng = np.random.default_rng(seed)
        rows = rng.integers(self.task.size, size=pairs or self.task.size)
        self.base = model.examples[rows]
        self.pairs = [*self._draw_sources(rows, rng)]
        why = "no other variable affects the answer beside it, so there is nothing to keep equal"
        self.missing = {name: why for name in requested if not own and name not in self.families}
        drawn = {pairs.family for pairs in self.pairs}
        for name in [name for name in self.families if name not in drawn]:
            vary, keep = self.families[name].vary, self.families[name].keep
            parts = {"varies": ["it"] if vary == (name,) else vary, "keeps": keep}
            does = " and ".join(f"{verb} {' and '.join(names)}" for verb, names in parts.items() if names)
            self.missing[name] = f"no pair {does} for any of {len(rows)} bases"
        undrawn = [name for name in requested if name in self.families and name not in drawn]
        if undrawn and not own and drawn.isdisjoint(requested):
            accepted = "expected another variable, more probe.pairs, or pairs of your own in probe.families"
            raise UserError(f"probe.variable={undrawn[0]}: {self.missing[undrawn[0]]}; {accepted}")

    def _draw_sources(self, rows: Array, rng: np.random.Generator) -> Iterator[FamilyPairs]:
        """Sources of the bases in every family, at each digit of the answer at which there are any."""
        model, task = self.causal_model, self.task
        for name, family in self.families.items():
            for t in range(task.width) if family.vary else [None]:
                drawn = sample_sources(model, family, t, rows, rng)
                found = np.flatnonzero(drawn >= 0)
                if not len(found):
                    continue
                source = model.examples[np.where(drawn >= 0, drawn, rows)]
                digits = {f"iia_{x}": model.interchange_by_digit(self.base, source, x) for x in self.variables}
                expected = {"iia_none": self.base.completion} | {key: task.to_tokens(y) for key, y in digits.items()}
                read = range(task.width) if t is None else [task.answer_positions[t]]
                yield FamilyPairs(name, source, found, read, expected)

    @torch.no_grad()
    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        forward = {site: model.resume_from(site, self.base) for site in self.sites}
        base_tokens = model.run(self.base).argmax(-1).cpu().numpy()  # (N, m)
        for pairs in self.pairs:
            for site, x in finite_cache(model, pairs.source, self.sites).items():
                own_token = len(scored_positions(model, site, 0, x)) == 1
                for position, name in enumerate(position_names(site, x.shape[1], self.task)):
                    if own_token and position not in pairs.positions:
                        continue
                    tokens = forward[site](Replace(site, name, x[:, position])).argmax(-1).cpu().numpy()
                    counted = {key: tokens == expected for key, expected in pairs.expected_tokens.items()}
                    counted["flipped"] = tokens != base_tokens
                    if name in self.task.prompt_names:
                        counted["iia_token"] = tokens == self._after_token(str(name), pairs.source)
                    shares = {key: y[pairs.found].mean(0).tolist() for key, y in counted.items()}
                    for t in [position] if own_token else pairs.positions:
                        row = {"site": site, "position": name, "family": pairs.family}
                        row |= {"answer": self.task.answer_names[t], "n": len(pairs.found)}
                        yield row | {key: shares[key][t] if key in shares else np.nan for key in self.measures}

    def _after_token(self, name: str, source: Examples) -> Array:
        """Tokens (N, m) of the answers with one token of the prompt taken from the source."""
        match, operands = re.fullmatch(r"(\w)(\d+)", name), self.task.operand_names
        if not match or match[1] not in operands:  # an operator
            return self.base.completion
        root = self.causal_model.roots[operands.index(match[1])]
        return self.task.to_tokens(self.causal_model.interchange(self.base, source, root, int(match[2])))

    def notes(self) -> list[str]:
        limit = "patching a whole activation cannot distinguish a value from a carry and an xor passed on together"
        missing = [f"no family for {name}: {why}" for name, why in self.missing.items()]
        return [*missing, f"{limit}; probe=subspaces and dose can"]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        decoder = rows[rows["site"].str.startswith("dec.")]
        means = weighted_means(decoder if len(decoder) else rows, ["site", "family"], self.measures)
        return format_cells(means.dropna(axis=1, how="all").rename(columns=lambda name: name.removeprefix("iia_")))

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        kept = {name: ", ".join(family.keep) for name, family in self.families.items() if family.vary and family.keep}
        titles = {name: f"{name} ({kept} the same)" for name, kept in kept.items()}
        return position_panels(self.task, rows.replace({"family": titles}), "flipped")


def position_panels(task: Task, rows: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Means over answers, in a panel for each family and for the sites that hold the prompt alone, or more."""
    means = weighted_means(rows, ["seed", "family", "site", "position"], [measure]).dropna().reset_index()
    known = [*task.prompt_names, *task.answer_names]

    def stack(positions: pd.Series) -> str:
        return "prompt" if {*positions} <= {*task.prompt_names} else "answer" if {*positions} <= {*known} else "other"

    means["stack"] = means.groupby("site")["position"].transform(stack)
    cells = means[["stack", "site", "position"]].drop_duplicates()  # the same in the panels of all families
    means = means[["seed", "family"]].drop_duplicates().merge(cells, how="cross").merge(means, how="left")
    positions = pd.Categorical(means["position"], [*dict.fromkeys([*known, *means["position"]])])
    return means.assign(panel=means["family"] + ", " + means["stack"], position=positions)
