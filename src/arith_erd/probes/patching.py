"""Which sites and positions carry the answer? Activation patching from a clean into a corrupted run."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from ..errors import UserError
from ..interp.hooked import Hooked
from ..interp.interventions import Replace
from ..interp.sites import chosen_sites, holds_prompt
from ..plots.curves import EpochCurves
from ..plots.style import GREY, heat_map, set_title, subplots
from ..tasks import Examples, Task
from .probe import Natural, OneOrMore, Positive, Probe, in_text, sample_pairs, weighted

LEARNT = 0.5  # accuracy on clean examples below which a note is printed


class Patching(Probe):
    """Copy the activation at one position of a site from the clean run to the corrupted one. Is the answer restored?

    Clean and corrupted inputs are teacher forced, each with its own answer. Only the ``n`` answers that differ at token
    t count. Their logit difference is that of the clean token minus that of the corrupted one. ``recovered`` is
    sum(patched - corrupted) / sum(clean - corrupted) of these differences: 0 if the patch changes nothing, 1 if it
    restores the clean difference. ``flipped`` is the share of tokens that become the clean ones.

    ``position`` is the patched position: ``a0`` .. of the prompt, at ``enc.*`` and in the layers of a decoder-only
    network that hold the prompt; ``r0`` .. of the answer, which predicts this token. ``answer_position`` is t.

    Args:
        corruption: ``bit`` flips one random bit of the operands (in other bases, changes one digit), ``pair`` takes
            other operands.
    """

    columns = ("seed", "site", "position", "answer_position", "n", "recovered", "flipped")
    units: ClassVar[dict[str, str]] = {"flipped": "accuracy"}

    def __init__(
        self,
        models: Sequence[Hooked],
        site: OneOrMore[str] = "all",
        corruption: Literal["bit", "pair"] = "bit",
        pairs: Positive = 256,
        seed: Natural = 0,
    ) -> None:
        self.models, self.task = models, models[0].task
        self.sites = chosen_sites(models, site)
        self.clean = sample_pairs(self.task, pairs, seed)
        self.corrupted = corrupt(self.task, self.clean, corruption, seed)

    def rows(self) -> Iterator[dict[str, Any]]:
        for model in self.models:
            for site in self.sites:
                for position, t, *measures in patched(model, site, self.clean, self.corrupted):
                    yield self.row(model.seed, site, position, t, *measures)

    def notes(self) -> list[str]:
        right = {model.seed: model.accuracy(self.clean) for model in self.models}
        why = "of the clean answers are right; clean and corrupted runs hardly differ, so recovered means little"
        return [f"seed {seed}: {accuracy:.0%} {why}" for seed, accuracy in right.items() if accuracy < LEARNT]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        return in_text(100 * self._wide(rows).rename_axis("%"), "z.0f")

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        most = {seed: self._wide(of_seed).max(axis=1) for seed, of_seed in rows.groupby("seed")}
        best = pd.concat(most, names=["seed"]).rename("recovered").reset_index()
        return EpochCurves.of(best, "recovered", ["site"], label="largest recovery by one position")

    def figure(self, rows: pd.DataFrame) -> Figure:
        wide = self._wide(rows)
        in_encoder = wide.index.str.startswith("enc.")
        panels = [wide[which].dropna(axis=1, how="all") for which in (in_encoder, ~in_encoder) if which.any()]
        widths = [len(panel.columns) for panel in panels]
        shape = 1.2 + 0.45 * sum(widths), 1.3 + 0.36 * max(map(len, panels))
        figure, (axes,) = subplots(*shape, 1, len(panels), squeeze=False, width_ratios=widths)
        largest = np.clip(np.nanmax(np.abs(wide.to_numpy())), 0.1, 2)
        norm = Normalize(-largest, largest)  # a patch can also move the logits the wrong way
        for ax, panel in zip(axes, panels, strict=True):
            heat_map(ax, panel, norm, "RdBu", "z.2f")
            read = sum(name not in self.task.answer_names for name in panel.columns)
            if 0 < read < len(panel.columns):  # the prompt and the answer in one sequence
                ax.axvline(read - 0.5, color=GREY, linewidth=0.8)
            ax.set_xlabel("patched position")
        set_title(figure, self.task.name, "share of the logit difference that one position recovers", rows)
        return figure

    def _wide(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Mean recovery (sites, positions) over seeds and answer tokens; NaN for positions that a site lacks."""
        mean = weighted(rows, ["site", "position"], ["recovered"])["recovered"]
        names = [*self.task.prompt_names, *self.task.answer_names]
        return mean.unstack("position").reindex(index=rows["site"].unique(), columns=names).dropna(axis=1, how="all")


@torch.no_grad()
def patched(
    model: Hooked, site: str, clean: Examples, corrupted: Examples
) -> Iterator[tuple[str, int, int, float, float]]:
    """Patch each position of a site: yields ``position, t, n, recovered, flipped`` for each answer token t."""
    logits, cache = model.run_with_cache(clean, [site], include_prompt=True)
    tokens = [torch.as_tensor(x.completion, device=logits.device) for x in (clean, corrupted)]
    differ = (tokens[0] != tokens[1]).double()  # (N, m)

    def difference(logits: Tensor) -> Tensor:
        by_token = [logits.gather(-1, x[..., None]).squeeze(-1) for x in tokens]
        return ((by_token[0] - by_token[1]).double() * differ).sum(0)  # (m,)

    resumed, n = model.resume_from(site, corrupted), differ.sum(0)
    whole, none = difference(logits), difference(resumed())
    task, held = model.task, cache[site].shape[1]
    prompt, answer = len(task.prompt_names), len(task.answer_names)
    if held not in (prompt, answer, prompt + answer):
        accepted = f"{prompt} of the prompt, {answer} of the answer, or both together"
        raise UserError(f"probe.site={site}: has {held} position{'s' * (held != 1)}; expected {accepted}")
    names = task.prompt_names if holds_prompt(site, held, task) else [*task.prompt_names, *task.answer_names]
    for place, name in enumerate(names[-held:]):
        logits = resumed([Replace(site, name, cache[site][:, place])])
        recovered = (difference(logits) - none) / (whole - none)
        flipped = ((logits.argmax(-1) == tokens[0]) * differ).sum(0) / n
        for t, measures in enumerate(zip(n, recovered, flipped, strict=True)):
            yield name, t, int(measures[0]), float(measures[1]), float(measures[2])


def corrupt(task: Task, clean: Examples, corruption: str, seed: int) -> Examples:
    """The corrupted partner of every clean example: one digit of one operand changed, or other operands."""
    generator = np.random.default_rng([seed, 1])
    if corruption == "pair":
        shift = generator.integers(1, task.size, size=len(clean))  # never the operands themselves
        index = np.ravel_multi_index(tuple(clean.operands.T), task.shape)
        return task.examples(*np.unravel_index((index + shift) % task.size, task.shape))
    operands = clean.operands.copy()
    todo = np.arange(len(clean))
    while len(todo):  # draw again if the change leaves the task's range, as from 96 to 97 modulo 97
        operand, place = np.divmod(generator.integers(task.num_operands * task.bits, size=len(todo)), task.bits)
        old, unit = clean.operands[todo, operand], task.base**place
        digit = old // unit % task.base
        changed = (digit + generator.integers(1, task.base, size=len(todo))) % task.base
        new = old + (changed - digit) * unit
        inside = new < task.limit
        operands[todo[inside], operand[inside]] = new[inside]
        todo = todo[~inside]
    return task.examples(*operands.T)
