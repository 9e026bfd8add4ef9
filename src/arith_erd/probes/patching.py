"""Which sites and positions carry the answer? Activation patching from a clean into a corrupted run."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from ..errors import bad_value, require_integer
from ..interp.activations import Continuation, capture, check_sites, embeddings, layers
from ..interp.subject import Subject
from ..interp.tokens import answer_names, prompt_names
from ..models.decoding import shift_right
from ..models.hook_point import position_axis
from ..models.network import Network
from ..plots.course import Course
from ..plots.heat import heat_map
from ..plots.style import GREY, canvas, seeds_text
from ..tasks import Examples, Task
from .probe import Probe
from .sample import sample_pairs

CORRUPTIONS = ("bit", "pair")


class Patching(Probe):
    """Copy the activation at one position of a site from the clean run to the corrupted one. Is the answer restored?

    Clean and corrupted inputs are teacher forced, each with its own answer. Where their answers differ, at answer
    token t, the logit difference is that of the clean token less the corrupted one. ``recovered`` is 0 where the patch
    changes nothing and 1 where it restores the clean difference: sum(patched - corrupted) / sum(clean - corrupted).
    ``flipped`` is the share of those tokens that become the clean ones. ``n`` counts them.

    ``position`` names what is patched: ``a0`` .. of the prompt, at ``enc.*`` and wherever a decoder-only network holds
    the prompt; ``r0`` .. of the answer, the position that predicts this token. ``answer_position`` is t.

    At three bits, ``3 + 5 = 8`` corrupted in bit 0 of a is ``2 + 5 = 7``: all four answer tokens differ.

    Args:
        subjects: trained replicas of one task.
        site: one, several, or ``all`` layers.
        corruption: ``bit`` flips one random bit of the operands (in other bases, changes one digit), ``pair`` takes
            another pair.
        pairs: number of clean pairs.
        seed: of the sample and the corruption.
    """

    columns = ("seed", "site", "position", "answer_position", "n", "recovered", "flipped")
    units: ClassVar[dict[str, str]] = {"flipped": "accuracy"}

    def __init__(
        self,
        subjects: Sequence[Subject],
        site: str | Sequence[str] = "all",
        corruption: str = "bit",
        pairs: int = 256,
        seed: int = 0,
    ) -> None:
        require_integer("probe.seed", seed, 0)
        if corruption not in CORRUPTIONS:
            raise bad_value("probe.corruption", corruption, " or ".join(CORRUPTIONS))
        self.subjects = subjects
        self.task = subjects[0].task
        network = subjects[0].network
        chosen = [site] if isinstance(site, str) else list(dict.fromkeys(site))
        self.sites = layers(network) if chosen == ["all"] else chosen
        check_sites(network, self.sites)
        self.clean = sample_pairs(self.task, pairs, seed)
        self.corrupted = corrupt(self.task, self.clean, corruption, seed)
        self.held = held_positions(network, self.task, self.sites)

    def rows(self) -> Iterator[dict[str, Any]]:
        for subject in self.subjects:
            for site in self.sites:
                for position, measures in zip(self.held[site], self._patch(subject, site), strict=True):
                    for t, values in enumerate(measures):
                        yield dict(zip(self.columns, (subject.seed, site, position, t, *values), strict=True))

    @torch.no_grad()
    def _patch(self, subject: Subject, site: str) -> Iterator[list[tuple[int, float, float]]]:
        """For each position that is patched: ``n``, ``recovered`` and ``flipped`` at each answer token."""
        inputs, tokens = [], []
        for examples in (self.clean, self.corrupted):
            completion = torch.from_numpy(examples.completion)
            inputs.append((torch.from_numpy(examples.prompt), shift_right(completion)))
            tokens.append(completion)
        count = len(self.held[site])
        rows = [embeddings(subject.network, *x, [site], last=count)[site] for x in inputs]
        given = [x.unflatten(1, (count, -1)) for x in rows]  # (N, k, ...)
        differ = (tokens[0] != tokens[1]).double()  # (N, m)
        rest = Continuation(subject.network, site, *inputs[1], last=count)

        def difference(logits: Tensor) -> Tensor:
            by_token = [logits.gather(-1, x[..., None]).squeeze(-1) for x in tokens]
            return (by_token[0] - by_token[1]).double() * differ  # (N, m)

        clean, corrupted = difference(subject.network(*inputs[0])).sum(0), difference(rest(given[1].flatten(1))).sum(0)
        for position in range(count):
            patched = given[1].clone()
            patched[:, position] = given[0][:, position]
            logits = rest(patched.flatten(1))
            recovered = (difference(logits).sum(0) - corrupted) / (clean - corrupted)
            flipped = ((logits.argmax(-1) == tokens[0]) * differ).sum(0) / differ.sum(0)
            yield [(int(n), float(r), float(f)) for n, r, f in zip(differ.sum(0), recovered, flipped, strict=True)]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """``recovered`` over all answer tokens, in percent: a column for each position; means over the seeds."""
        wide = self._wide(rows).map(lambda x: "" if np.isnan(x) else f"{round(100 * x)}")
        return wide.rename_axis("%").reset_index()

    def course(self, rows: pd.DataFrame) -> Course:
        """The largest share that one position recovers, a line for each site."""
        most = {seed: self._wide(of_seed).max(axis=1) for seed, of_seed in rows.groupby("seed")}
        best = pd.concat(most, names=["seed"]).rename("recovered").reset_index()
        return Course.of(best, self.sheet("", best), line="site", label="most that one position recovers")

    def figure(self, rows: pd.DataFrame) -> Figure:
        """The table as heat maps: one for the encoder, and one for all other sites."""
        wide = self._wide(rows)
        encoder = [site for site in wide.index if site.startswith("enc.")]
        panels = [
            wide.loc[sites].dropna(axis=1, how="all") for sites in (encoder, wide.index.drop(encoder)) if len(sites)
        ]
        widths = [len(panel.columns) for panel in panels]
        figure = canvas(1.2 + 0.45 * sum(widths), 1.3 + 0.36 * max(map(len, panels)))
        axes: list[Axes] = list(figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0])
        norm = Normalize(0, max(0.1, np.nanmax(wide.to_numpy())))
        answer = set(answer_names(self.task))
        for ax, panel in zip(axes, panels, strict=True):
            heat_map(ax, panel.to_numpy(), list(panel.index), list(panel.columns), norm, numbers="z.2f")
            read = sum(name not in answer for name in panel.columns)
            if 0 < read < len(panel.columns):  # the prompt and the answer in one sequence
                ax.axvline(read - 0.5, color=GREY, linewidth=0.8)
            ax.set_xlabel("patched position")
        what = f"Patching, {self.task.name}: share of the logit difference\nthat one position recovers"
        figure.suptitle(f"{what} ({seeds_text(rows)})", fontsize=10)
        return figure

    def _wide(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Means (sites, positions) over seeds and over the answer tokens that differ; NaN where a site lacks one."""
        weighted = rows.assign(total=rows["recovered"].fillna(0) * rows["n"])
        sums = weighted.groupby(["seed", "site", "position"], sort=False)[["total", "n"]].sum()
        mean = (sums["total"] / sums["n"]).groupby(level=["site", "position"], sort=False).mean()
        wide = mean.unstack("position").loc[list(rows["site"].unique())]
        return wide[[name for name in [*prompt_names(self.task), *answer_names(self.task)] if name in wide]]


@torch.no_grad()
def held_positions(network: Network, task: Task, sites: Sequence[str]) -> dict[str, list[str]]:
    """Names of the positions at each site: the prompt's at ``enc.*``, elsewhere the answer's and those before it."""
    first = task.examples(*[[0]] * task.operands)
    with capture(network, sites) as outputs:
        network(torch.from_numpy(first.prompt), shift_right(torch.from_numpy(first.completion)))
    prompt, whole = prompt_names(task), [*prompt_names(task), *answer_names(task)]
    named = network.sites()
    return {
        site: prompt if site.startswith("enc.") else whole[-output.shape[position_axis(named[site])] :]
        for site, output in outputs.items()
    }


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
        operand, place = np.divmod(generator.integers(task.operands * task.bits, size=len(todo)), task.bits)
        old = clean.operands[todo, operand]
        unit = task.base**place
        digit = old // unit % task.base
        changed = (digit + generator.integers(1, task.base, size=len(todo))) % task.base
        new = old + (changed - digit) * unit
        inside = new < task.limit
        operands[todo[inside], operand[inside]] = new[inside]
        todo = todo[~inside]
    return task.examples(*operands.T)
