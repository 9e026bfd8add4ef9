"""Which sites and positions carry the answer? Patch an activation of the clean run into a corrupted one."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from torch import Tensor

from ..interp.hooked import Hooked
from ..interp.patching import patched_runs, token_differences
from ..interp.sites import layers
from ..plots.curves import EpochCurves
from ..plots.panels import RECOVERY_MAPS
from ..tasks import Examples, Task
from .probe import IN_FILE, Count, Natural, NetworkProbe, OneOrMore, format_cells, select_sites, weighted_means

MIN_CLEAN_ACCURACY = 0.5  # a lower accuracy on clean examples gives a note


class Patching(NetworkProbe):
    """Replace the activation at a position of a site in a corrupted run by the clean run's.

    A row is a site, a position, the ``corruption`` and the ``token`` of the answer that is read.
    Positions are named after the prompt tokens that they hold, or after the answer tokens that they predict.
    Only the ``n`` answers whose clean and corrupted tokens differ count. Their logit difference is the clean token's
    logit minus the corrupted token's. ``recovered`` is sum(patched - corrupted) / sum(clean - corrupted) of these
    differences: 0 if the patch changes nothing, 1 if it restores the clean difference. ``flipped`` is the share of
    answers that become the clean ones.
    """

    units: ClassVar[dict[str, str]] = {"flipped": "accuracy"}
    picture = replace(RECOVERY_MAPS, panel="panel", title="share of the logit difference that one position recovers")

    corruption: Literal["bit", "pair"] = IN_FILE
    site: OneOrMore[str] | None = IN_FILE
    num_examples: Count | None = IN_FILE
    seed: Natural = IN_FILE

    def __post_init__(self) -> None:
        self.sites = select_sites(self.models, self.site)
        self.clean = self.task.examples().sample(self.num_examples, self.seed)
        self.corrupted = CORRUPTIONS[self.corruption](self.task, self.clean, np.random.default_rng([self.seed, 1]))

    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        clean, corrupted = model.target_tokens(self.clean), model.target_tokens(self.corrupted)
        differ = clean != corrupted  # (N, m)

        def difference(logits: Tensor) -> Tensor:  # (N, m, V) -> (m,), summed over the answers that count
            return (token_differences(logits, clean, corrupted) * differ).sum(0)

        of_corrupted, of_clean = (difference(model.run(examples)) for examples in (self.corrupted, self.clean))
        n = differ.sum(0)
        for site, name, logits in patched_runs(model, self.clean, self.corrupted, self.sites):
            recovered = (difference(logits) - of_corrupted) / (of_clean - of_corrupted)
            flipped = ((logits.argmax(-1) == clean) & differ).sum(0).double() / n
            for t, token in enumerate(self.task.answer_names):
                row = {"site": site, "position": name, "corruption": self.corruption, "token": token, "n": int(n[t])}
                yield row | {"recovered": float(recovered[t]), "flipped": float(flipped[t])}

    def notes(self) -> list[str]:
        right = {model.seed: model.accuracy(self.clean) for model in self.models}
        why = "of the clean answers are right; clean and corrupted runs hardly differ, so recovered means little"
        names, last = self.task.answer_names, layers(self.models[0].sites, "dec")[-1:]
        own = "in the last layer a position carries only its own token, so"
        return [
            "each number is a mean over the answer's tokens",
            *(f"{own} {names[0]} to {names[-1]} sum to about 100% there" for site in last if site in self.sites),
            *(f"seed {seed}: {share:.0%} {why}" for seed, share in right.items() if share < MIN_CLEAN_ACCURACY),
        ]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        return format_cells(100 * self.picture.pivot(self.shown(rows), "site").rename_axis("% recovered"), "z.0f")

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        largest = self.shown(rows).groupby(["seed", "site"], sort=False)["recovered"].max().reset_index()
        return EpochCurves.from_rows(largest, "recovered", ["site"], label="largest recovery by one position")

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        return position_panels(self.task, rows, "corruption", "recovered")


def change_digit(task: Task, clean: Examples, generator: np.random.Generator) -> Examples:
    """The examples, each with one digit of one operand changed."""
    operands = clean.operands.copy()
    while len(rows := np.flatnonzero((operands == clean.operands).all(axis=1))):
        operand, place = np.divmod(generator.integers(task.num_operands * task.bits, size=len(rows)), task.bits)
        old, unit = operands[rows, operand], task.base**place
        digit = old // unit % task.base
        changed = (digit + generator.integers(1, task.base, size=len(rows))) % task.base
        new = old + (changed - digit) * unit
        operands[rows, operand] = np.where(new < task.limit, new, old)  # out of range, as 97 modulo 97: draw again
    return task.examples(*operands.T)


def other_operands(task: Task, clean: Examples, generator: np.random.Generator) -> Examples:
    """Another example for each example, drawn at random."""
    shift = generator.integers(1, task.size, size=len(clean))  # never the operands themselves
    index = np.ravel_multi_index(tuple(clean.operands.T), task.shape)
    return task.examples(*np.unravel_index((index + shift) % task.size, task.shape))


CORRUPTIONS = {"bit": change_digit, "pair": other_operands}


def position_panels(task: Task, rows: pd.DataFrame, pairs: str, measure: str) -> pd.DataFrame:
    """Means over tokens; a panel for each value of the column ``pairs`` and kind of site (prompt, answer or other)."""
    means = weighted_means(rows, ["seed", pairs, "site", "position"], [measure]).dropna().reset_index()
    known = [*task.prompt_names, *task.answer_names]

    def stack(positions: pd.Series) -> str:
        return "prompt" if {*positions} <= {*task.prompt_names} else "answer" if {*positions} <= {*known} else "other"

    means["stack"] = means.groupby("site")["position"].transform(stack)
    cells = means[["stack", "site", "position"]].drop_duplicates()  # the same in all panels of a kind
    means = means[["seed", pairs]].drop_duplicates().merge(cells, how="cross").merge(means, how="left")
    positions = pd.Categorical(means["position"], [*dict.fromkeys([*known, *means["position"]])])
    return means.assign(panel=means[pairs] + ", " + means["stack"], position=positions)
