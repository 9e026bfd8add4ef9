"""Which algorithm does a network run? A verdict for each network, calibrated on networks written by hand."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from pydantic import Field

from ..errors import UserError
from ..interp.causal_model import CausalModelSpec
from ..interp.hooked import Hooked
from ..interp.sites import check_sites
from ..mechanism.card import MAX_DISTANCE, UNCALIBRATED, USER_MODEL, Card, make_card
from ..mechanism.place_value import require_binary
from ..mechanism.responses import with_prefix
from ..mechanism.signature import (
    POST_HOC,
    Diagnosis,
    MeasuredSignature,
    decide,
    expected_signatures,
    is_calibrated,
    measure_signature,
)
from ..plots.curves import EpochCurves
from ..plots.style import BLUE, GREY, INK, canvas, headline, heat_map, tidy
from ..tasks import Add, Mul
from .probe import Natural, Probe

Enough = Annotated[int, Field(ge=64)]
QUESTIONS = {
    "flip_propagate": "Previous bit inverted:\nanswers that change",
    "remainder": "Random prefixes:\nremainder is right",
    "local_remainder_over_graded_carry": "Where rules differ:\nlocal_remainder is right",
    "carry": "Carry inverted:\nanswers that follow",
    "value": "Sum shifted by 1 .. 64:\nanswers that follow",
}
OVER_TRAINING = {
    ("accuracy", ""): "right",
    ("signature", "carry"): "follow an inverted carry",
    ("signature", "value"): "follow a shifted sum",
}


class Mechanism(Probe):
    """Compare a network with each known algorithm, bit by bit, and name the nearest one.

    Three tests are made for every bit (`mechanism.signature`): does it follow a wrong prefix? An inverted carry? A
    shifted sum?

    The algorithms are those of `models.references`: ``erd`` (the sum as one number), ``remainder`` (the sum minus the
    prefix's number), ``prefix_carry`` and ``lookahead_carry`` (carries from the prefix, or from the operands). The
    verdict is ``mixed`` if one fits the low bits and another the high bits, ``none`` if none fits, and ``undecided`` if
    the tests cannot decide. Distances to ``graded_carry`` and ``local_remainder`` are reported too. These were written
    after trained networks had been seen, so the verdict cannot name them.

    Your own causal model is compared too, if it has the variable ``prefix`` (`interp.algorithms`). ``user_model`` is
    the share of answers after random prefixes that it predicts, where no known algorithm ties. The verdict cannot name
    it. For its other variables use `Dose`, `Interchange` and `Subspaces`.

    A row is one number. ``test`` is ``verdict`` (the component is its name, the value the distance to the nearest
    algorithm), ``distance`` (to each algorithm), ``accuracy``, ``signature`` (the components behind the verdict) or
    ``steering`` (informedness by site, -1 to 1; `mechanism.responses.steer`).

    Args:
        pairs: number of examples that get wrong prefixes.
        moved: number of examples that are steered, along directions from as many others.
        causal_model: a hypothesis of yours (`interp.causal_model.build_causal_model`); None for none.

    Raises:
        UserError: if the task or its order of digits is not supported, a site is missing, there are too few examples,
            or the causal model lacks ``prefix``.
    """

    columns = ("seed", "test", "component", "site", "position", "value")
    across = ("position",)

    def __init__(
        self,
        models: Sequence[Hooked],
        pairs: Enough = 1024,
        moved: Enough = 512,
        seed: Natural = 0,
        causal_model: CausalModelSpec = None,
    ) -> None:
        task = models[0].task
        if not isinstance(task, Add | Mul):
            raise UserError(f"probe=mechanism: received task={task.name}; expected a run of add or mul")
        require_binary(task)
        for model in models:
            check_sites(model.sites, ["dec.embed", "dec.1"], "probe=mechanism: site")
        self.models = models
        self.pairs, self.moved, self.seed = pairs, moved, seed
        self.user_model = with_prefix(task, causal_model, "probe.causal_model")
        self.expected = expected_signatures(task) if isinstance(task, Add) else {}
        self.measured = cache(self._measure)  # each network once: for rows and card

    def rows(self) -> Iterator[dict[str, Any]]:
        for model in self.models:
            signature, verdict = self.measured(model)
            for values in (*verdict.rows(), *signature.rows()):
                yield self.row(model.seed, *values)

    def _measure(self, model: Hooked) -> tuple[MeasuredSignature, Diagnosis]:
        signature = measure_signature(model, self.pairs, self.moved, self.seed, self.user_model)
        return signature, decide(signature, self.expected)

    @property
    def card(self) -> Card:
        task = self.models[0].task
        cards = [make_card(m, *self.measured(m), is_calibrated(m.network, task)) for m in self.models]
        return Card.of(task.name, task.bits, cards)

    def files(self) -> dict[str, str]:
        return {"card.json": self.card.to_json(), "notes.txt": "\n".join([*self.card.notes(), ""])}

    def summary(self) -> list[str]:
        return self.card.summary()

    def notes(self) -> list[str]:
        return [] if self.card.calibrated else [UNCALIBRATED]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        return self.card.table()

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        """Accuracy and the effects of steering, as means over bits, with a panel for each seed."""
        means = rows[rows["site"] == ""].groupby(["seed", "test", "component"])["value"].mean().reset_index()
        means["line"] = [OVER_TRAINING.get(of) for of in zip(means["test"], means["component"], strict=True)]
        table = means.dropna(subset="line").assign(panel="")  # in the order of OVER_TRAINING, as its keys are sorted
        return EpochCurves(
            table[["seed", "panel", "line", "value"]], "share of the answers, mean over bits", by_seed=True
        )

    def figure(self, rows: pd.DataFrame) -> Figure:
        """A table of shares for each test; below, a dot for each network's distance to each algorithm."""
        card = self.card
        names = {one.seed: f"seed {one.seed}: {one.verdict}" for one in card.seeds}
        signature, distances = (rows[rows["test"] == test] for test in ("signature", "distance"))
        lines = [*names.values(), *(f"{algorithm}, expected" for algorithm in self.expected)]
        bits = list(map(str, range(1, self.models[0].task.width)))
        heights = [0.32 * len(lines) + 1.3, *([0.3 * distances["component"].nunique() + 1.2] if len(distances) else [])]
        questions = QUESTIONS | ({USER_MODEL: "Random prefixes:\nyour model is right"} if self.user_model else {})
        figure = canvas(2.6 * len(questions), 0.4 + sum(heights))
        figure.suptitle(card.title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
        above, *below = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        for i, (ax, component) in enumerate(zip(above.subplots(1, len(questions)), questions, strict=True)):
            of_component = signature[signature["component"] == component].groupby(["seed", "position"])["value"].mean()
            measured = of_component.unstack("position").reindex(index=list(names), columns=bits)
            ideal = [shares.get(component, np.full(len(bits) + 1, np.nan))[1:] for shares in self.expected.values()]
            table = pd.DataFrame(np.vstack([measured.to_numpy(dtype=float), *ideal]), lines, bits)
            heat_map(ax, table, Normalize(0, 1.3), numbers="z.1f")
            ax.tick_params(labelleft=not i)
            ax.axhline(len(names) - 0.5, color=INK, linewidth=1.2)
            ax.set_xlabel("bit of the answer", fontsize=9)
            headline(ax, questions[component])
        for part in below:
            _draw_distances(part.subplots(), distances)
        return figure


def _draw_distances(ax: Axes, rows: pd.DataFrame) -> None:
    tidy(ax)
    beside = rows["component"].isin(POST_HOC)
    names = list(rows.groupby("component")["value"].mean().sort_values().index)
    for part, fill in ((beside, "none"), (~beside, "full")):
        at = rows.loc[part, "component"].map(names.index)
        ax.plot(rows.loc[part, "value"], at, "o", color=BLUE, markersize=6, alpha=0.8, fillstyle=fill)
    ax.axvline(MAX_DISTANCE, color=GREY, linewidth=1, linestyle=":")
    ax.set_yticks(range(len(names)), names, fontsize=8.5)
    ax.set(xlim=(0, None), ylim=(len(names) - 0.5, -0.5))
    headline(ax, "Distance to each algorithm", f"at most {MAX_DISTANCE:g} (dotted): near; hollow: not in the verdict")
