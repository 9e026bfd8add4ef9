"""Which algorithm gives a network's answers, after every prefix of every pair? And how precise is the network's c?"""

from collections.abc import Iterator
from functools import cache
from operator import methodcaller
from typing import Any, ClassVar

import pandas as pd
from matplotlib.figure import Figure

from ..config.causal_models import CausalModelSpec, build_prefix_model
from ..errors import unknown_name
from ..interp.hooked import Hooked
from ..mechanism.certificate import CLEAR, certificate, compared_algorithms
from ..mechanism.prefixes import USER_MODEL
from ..plots.curves import EpochCurves
from ..plots.panels import Lines
from ..plots.style import GREY
from .probe import IN_FILE, Count, NetworkProbe, format_cells, weighted_means


class CertificateProbe(NetworkProbe):
    """Ask a network for every bit of the answer to every pair after every prefix, and count which algorithms agree.

    A row has the share ``right`` of the ``n`` answers of a ``bit`` that an ``algorithm`` gives. ``distance`` is how far
    a_t + b_t + c is from the nearest rounding point, 0 to 1/2 (`mechanism.certificate`). ``erd`` ignores the prefix, as
    ``lookahead_carry`` does; your own model is ``user_model``. The networks must add or multiply. A multiplication of
    more than five bits has too many prefixes, and needs ``num_completions``. The option ``algorithm`` chooses one for
    the summary, the counterexamples and the left panel of the figure.

    More files: ``contrasts.csv`` (the share that the first of two algorithms gives, among answers on which they
    differ), ``precision.csv`` (threshold and noise of c), ``curve.csv`` (how many answers are 1, by a_t + b_t + c),
    ``counterexamples.csv`` (clear answers that differ from the chosen algorithm's), and ``answers-seed=K.bin`` (all
    answers, for `Certificate.from_bytes`).
    """

    units: ClassVar[dict[str, str]] = {"right": "accuracy"}
    picture = Lines(
        *("right", "distance", "algorithm", "panel"),
        title="which algorithm gives the network's answers?",
        xlabel="distance to the nearest rounding point",
        ylabel="answers that the algorithm gives",
        percent=True,
    )

    algorithm: str = IN_FILE
    num_completions: Count | None = IN_FILE
    causal_model: CausalModelSpec = IN_FILE

    def __post_init__(self) -> None:
        user_model = build_prefix_model(self.task, self.causal_model, "probe.causal_model")
        known = [*compared_algorithms(self.task), *[USER_MODEL] * (user_model is not None)]
        if self.algorithm not in known:
            raise unknown_name("probe.algorithm", self.algorithm, known)
        # measure each network once, for rows and files
        self.certificate = cache(lambda model: certificate(model, user_model, self.num_completions))

    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        yield from self.certificate(model).shares().to_dict("records")

    def files(self) -> dict[str, str | bytes]:
        found: dict[str, str | bytes] = {}
        make_tables = {name: methodcaller(name) for name in ("contrasts", "precision", "curve")}
        make_tables["counterexamples"] = methodcaller("counterexamples", self.algorithm)
        for name, make_table in make_tables.items():
            tables = [make_table(self.certificate(m)).assign(seed=m.seed) for m in self.models]
            found[f"{name}.csv"] = pd.concat(tables).to_csv(index=False, float_format="%.9g")
        return found | {f"answers-seed={m.seed}.bin": self.certificate(m).to_bytes() for m in self.models}

    def summary(self) -> list[str]:
        what, lines = f"of the answers at least {CLEAR} from a rounding point", []
        for model in self.models:
            shares = self.certificate(model).shares()
            clear = mean_over_bits(shares[(shares["algorithm"] == self.algorithm) & (shares["distance"] >= CLEAR)])
            lines.append(f"seed {model.seed}: {self.algorithm} gives {clear:.2%} {what}")
        return lines

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Shares of clear answers, means over seeds."""
        clear = rows[rows["distance"] >= CLEAR]
        by_bit = weighted_means(clear, ["algorithm", "bit"], ["right"])["right"].unstack("bit")
        return format_cells(by_bit, ".2%")

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        return EpochCurves.from_rows(rows[rows["distance"] >= CLEAR], "right", ["algorithm"], unit="accuracy")

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        """On the left a line for each network, for the chosen algorithm; on the right the means of the others."""
        steps = rows.assign(distance=(rows["distance"] * 16).round() / 16)  # finer steps hold few answers
        means = weighted_means(steps, ["seed", "algorithm", "distance"], ["right"]).reset_index()
        chosen, panel = means["algorithm"] == self.algorithm, f"{self.algorithm}, by network"
        networks = means[chosen].assign(algorithm=means["seed"].map("seed {}".format), panel=panel)
        return pd.concat([networks, means[~chosen].assign(panel="Other algorithms")])

    def figure(self, rows: pd.DataFrame) -> Figure:
        figure = super().figure(rows)
        for ax in figure.axes:
            ax.axvspan(0, CLEAR, color=GREY, alpha=0.1, linewidth=0)
            ax.set_ylim(0.3, 1.02)
        return figure


def mean_over_bits(shares: pd.DataFrame) -> float:
    """The mean over bits of each bit's share, so that every bit counts equally."""
    return float(weighted_means(shares, ["bit"], ["right"])["right"].mean())
