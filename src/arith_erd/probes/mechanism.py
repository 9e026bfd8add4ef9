"""Which algorithm does a network run? A verdict for each network, calibrated on networks written by hand."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache, cached_property
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from ..config.causal_models import CausalModelSpec, build_prefix_model
from ..errors import UserError
from ..interp.algorithms import require_binary
from ..interp.hooked import Hooked
from ..interp.sites import require_sites
from ..mechanism.prefixes import USER_MODEL
from ..mechanism.profile import UNCALIBRATED, NetworkProfile, make_profile
from ..mechanism.signature import MeasuredSignature, expected_signatures, measure_signature
from ..mechanism.steering import largest_shift
from ..mechanism.verdict import Classification, classify
from ..plots.curves import EpochCurves
from ..plots.panels import HeatMaps
from ..tasks import Add, Mul
from .probe import IN_FILE, Natural, NetworkProbe

SampleSize = Annotated[int, Field(ge=64)]
PANEL_TITLES = {
    "flip_propagate": "Previous bit inverted:\nanswers that change",
    "remainder": "Random prefixes:\nremainder is right",
    "local_remainder_over_graded_carry": "Where rules differ:\nlocal_remainder is right",
    "carry": "Carry inverted:\nanswers that follow",
    "value": "Sum shifted by 1 .. {shift}:\nanswers that follow",
    USER_MODEL: "Random prefixes:\nyour model is right",
}
CURVE_NAMES = {"": "right", "carry": "follow an inverted carry", "value": "follow a shifted sum"}


class Mechanism(NetworkProbe):
    """Compare a network with each known algorithm, bit by bit, and name the nearest one.

    Three tests for every bit (`mechanism.signature`) ask whether it follows a wrong prefix, an inverted carry and a
    shifted sum.

    The algorithms are those of `interp.algorithms`: ``erd`` (the sum as one number), ``remainder`` (the sum minus the
    prefix's number), ``prefix_carry`` and ``lookahead_carry`` (carries from the prefix, or from the operands). The
    verdict is ``mixed`` if one fits the low bits and another the high bits, ``none`` if none fits, and ``undecided`` if
    the tests cannot decide. Distances to ``graded_carry`` and ``local_remainder`` are reported too. We wrote these two
    after we had seen trained networks, so the verdict cannot name them.

    Your own causal model of an addition is a candidate too, called ``user_model``, if it has the variable ``prefix``.
    We run it to learn how a network with this algorithm would answer, and set its variables ``carry`` and ``sum``, too.
    The row ``user_model`` is the share of answers after random prefixes that it predicts, where no algorithm ties.

    A row is one number. ``test`` is ``verdict`` (the component is its name, the value the distance to the nearest
    algorithm), ``distance`` (to each algorithm), ``accuracy``, ``signature`` (the components behind the verdict) or
    ``steering`` (informedness by site, -1 to 1; `mechanism.steering.measure_steering`).
    """

    picture = HeatMaps(
        *("value", "position", "network", "question"),
        title="which algorithm does the network run?",
        xlabel="bit of the answer",
        number_format="z.1f",
        color_range=(0, 1.3),
        cell=(0.36, 0.32),
    )
    across = ("position",)

    num_examples: SampleSize = IN_FILE
    num_steered: SampleSize = IN_FILE
    seed: Natural = IN_FILE
    causal_model: CausalModelSpec = IN_FILE

    def __post_init__(self) -> None:
        task = self.task
        if not isinstance(task, Add | Mul):
            raise UserError(f"probe=mechanism: received task={task.name}; expected a run of add or mul")
        require_binary(task)
        task.require_enumerable("probe=mechanism")
        for model in self.models:
            require_sites(model.sites, ["dec.embed", "dec.1"], "probe=mechanism: site")
        self.user_model = build_prefix_model(task, self.causal_model, "probe.causal_model")
        self.expected = expected_signatures(task, self.user_model) if isinstance(task, Add) else {}
        self.classify = cache(self._classify)  # measure each network once, for rows and profile

    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        signature, classification = self.classify(model)
        for row in (*classification.rows(), *signature.rows()):
            yield row._asdict()

    def _classify(self, model: Hooked) -> tuple[MeasuredSignature, Classification]:
        signature = measure_signature(model, self.num_examples, self.num_steered, self.seed, self.user_model)
        return signature, classify(signature, self.expected)

    @cached_property
    def profiles(self) -> list[NetworkProfile]:
        return [make_profile(model, *self.classify(model)) for model in self.models]

    def files(self) -> dict[str, str]:
        profiles, calibrated = self.profiles, all(profile.calibrated for profile in self.profiles)
        verdicts = {profile.verdict for profile in profiles}
        verdict = verdicts.pop() if len(verdicts) == 1 else "undecided"
        profile = {"task": self.task.name, "bits": self.task.bits, "verdict": verdict, "calibrated": calibrated}
        text = json.dumps(profile | {"seeds": [asdict(p) for p in profiles]}, indent=1, ensure_ascii=False)
        notes = [f"seed {p.seed}: {line}" for p in profiles for line in (*p.summary(), *p.other_reasons)]
        return {"profile.json": f"{text}\n", "notes.txt": "\n".join([*notes, *self.notes(), ""])}

    def summary(self) -> list[str]:
        several = len(self.models) > 1
        return [f"seed {profile.seed}: " * several + line for profile in self.profiles for line in profile.summary()]

    def notes(self) -> list[str]:
        return [] if all(profile.calibrated for profile in self.profiles) else [UNCALIBRATED]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame([profile.row() for profile in self.profiles])

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        """Accuracy and the effects of steering, as means over bits, with a panel for each seed."""
        lines = rows["component"].map(CURVE_NAMES)
        shown = rows.assign(line=lines)[rows["test"].isin(["accuracy", "signature"]) & lines.notna()]
        return EpochCurves.from_rows(shown, "value", ["line"], "seed", "share of the answers, mean over bits")

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The shares for each question: first those of the networks, then those expected of each algorithm."""
        measured = {profile.seed: f"seed {profile.seed}: {profile.verdict}" for profile in self.profiles}
        components = {measured[model.seed]: self.classify(model)[0].components for model in self.models}
        components |= {f"{algorithm}, expected": signature for algorithm, signature in self.expected.items()}
        shift, unknown = largest_shift(self.task.bits), np.full(self.task.width, np.nan)
        table = pd.DataFrame(
            {"question": title.format(shift=shift), "network": network, "position": str(t), "value": shares[t]}
            for component, title in PANEL_TITLES.items()
            for network, signature in components.items()
            for shares in [signature.get(component, unknown)]
            for t in range(1, self.task.width)
        )
        return table[table.groupby("question")["value"].transform("count") > 0]
