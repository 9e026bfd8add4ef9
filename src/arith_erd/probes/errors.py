"""Which answers are wrong, in which tokens, and are they near the right ones in value or in bits?"""

from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

from ..digits import Array
from ..errors import counted
from ..interp.hooked import Hooked
from ..plots import style
from ..plots.panels import Bars
from ..stats import TokenCounts, stuck_status
from ..tasks import Examples
from .probe import NetworkProbe


def subset_names(model: Hooked, examples: Examples) -> npt.NDArray[np.str_]:
    """Subset (N,) of each example: ``train`` or ``validation``; ``all`` if the split is unknown."""
    if model.provenance.split is None:
        return np.full(len(examples), "all")
    return np.where(model.provenance.split(examples), "validation", "train")


class Errors(NetworkProbe):
    """The wrong greedy answers of every replica, one per row, with their operands.

    ``value_error`` is the decoded answer minus the right one; ``hamming_error`` counts wrong tokens. A model that
    answers ``3 + 5`` with ``1110`` instead of ``0001`` is wrong by -1 and in four tokens. ``longest_carry`` is the
    longest run of carries, here 3; empty for a task without carries. ``wrong_tokens`` names the tokens that are wrong
    even after the right prefix, that is, not because of an earlier error. ``subset`` is ``train`` or ``validation``, or
    ``all`` if the split is unknown.

    ``shares.csv`` counts, for each seed and subset, wrong answers, wrong tokens after the right prefix, and wrong
    answers by longest carry. ``majority`` is the share of the most common right token. ``stuck`` marks a held-out token
    that was ``never learned``, or that was learned and is ``lost held out`` (`arith_erd.stats.stuck_status`).
    """

    picture = Bars(
        *("share", "name", "subset", "by"),
        title="wrong answers, and wrong tokens after the right prefix",
        xlabel=" ",
        ylabel="wrong share",
        percent=True,
    )
    units: ClassVar[dict[str, str]] = {"value_error": "value", "hamming_error": "tokens", "share": "accuracy"}

    def __post_init__(self) -> None:
        self.examples = self.task.examples()
        self.carry = self.task.slices(self.examples).get("longest_carry")
        self.columns = (
            *("seed", "subset", *self.task.operand_names, "answer", "decoded"),
            *("value_error", "hamming_error", "longest_carry", "wrong_tokens"),
        )
        self.decode = cache(self._decode)  # decode each network once, for rows and shares

    def _decode(self, model: Hooked) -> tuple[Array, Array]:
        """The greedy tokens (N, m), and whether each token is wrong after the right prefix."""
        tokens = model.greedy_tokens(self.examples).cpu().numpy()
        return tokens, model.run(self.examples).argmax(-1).cpu().numpy() != self.examples.completion

    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        names, examples, subset = np.array(self.task.answer_names), self.examples, subset_names(model, self.examples)
        tokens, wrong_tokens = self.decode(model)
        decoded, hamming = self.task.decode(tokens), (tokens != examples.completion).sum(axis=1)
        for i in np.flatnonzero(hamming):
            operands = dict(zip(self.task.operand_names, examples.operands[i].tolist(), strict=True))
            answer, decoded_answer = int(examples.answer[i]), int(decoded[i])
            yield {"subset": str(subset[i]), **operands, "answer": answer, "decoded": decoded_answer} | {
                "value_error": decoded_answer - answer,
                "hamming_error": int(hamming[i]),
                "longest_carry": None if self.carry is None else int(self.carry[i]),
                "wrong_tokens": " ".join(names[wrong_tokens[i]]),
            }

    @cached_property
    def shares(self) -> pd.DataFrame:
        """The rows of ``shares.csv``, with the ``share`` of wrong answers or tokens."""
        columns = ["seed", "subset", "by", "name", "examples", "wrong", "majority", "stuck"]
        table = pd.DataFrame([row for model in self.models for row in self._counts(model)], columns=columns)
        return table.assign(stuck=table["stuck"].fillna(""), share=table["wrong"] / table["examples"])

    def _counts(self, model: Hooked) -> Iterator[dict[str, Any]]:
        subset_of, (tokens, wrong_tokens) = subset_names(model, self.examples), self.decode(model)
        completion, training = self.examples.completion, dict[str, TokenCounts]()
        wrong_answers = (tokens != completion).any(axis=1)

        def count(subset: str, by: str, name: str, wrong: npt.NDArray[np.bool_]) -> dict[str, Any]:
            sizes = {"examples": len(wrong), "wrong": int(wrong.sum())}
            return {"seed": model.seed, "subset": subset, "by": by, "name": name} | sizes

        for subset in map(str, np.unique(subset_of)):  # ``train`` comes before ``validation``
            inside = subset_of == subset
            yield count(subset, "answer", "all", wrong_answers[inside])
            for t, name in enumerate(self.task.answer_names):
                row = count(subset, "token", name, wrong_tokens[inside, t])
                row["majority"] = float(np.bincount(completion[inside, t]).max()) / row["examples"]
                counts = (row["examples"] - row["wrong"], row["examples"], row["majority"])
                row["stuck"] = stuck_status(training[name], counts) if name in training else ""
                if subset == "train":
                    training[name] = counts
                yield row
            for length in [] if self.carry is None else np.unique(self.carry[inside]):
                yield count(subset, "longest carry", str(length), wrong_answers[inside & (self.carry == length)])

    def files(self) -> dict[str, str]:
        return {"shares.csv": self.shares.drop(columns="share").to_csv(index=False, float_format="%.9g")}

    @property
    def _all_right_sentence(self) -> str:
        """A sentence if no network answers wrong, else empty."""
        wrong = self.shares.loc[self.shares["by"] == "answer", "wrong"].any()
        what = f"{len(self.examples):,} {'pairs' if self.task.num_operands == 2 else 'examples'}"
        return "" if wrong else f"no wrong answer in {what} ({counted(len(self.models), 'seed')})"

    def summary(self) -> list[str]:
        return [self._all_right_sentence] if self._all_right_sentence else []

    def figure(self, rows: pd.DataFrame) -> Figure:
        if not self._all_right_sentence:
            return super().figure(self.shares)  # rows lack the seeds without a wrong answer
        figure, ax = style.subplots(6.4, 0.6)
        ax.axis("off")
        style.set_figure_title(figure, self.task.name, self._all_right_sentence, pd.DataFrame())
        return figure

    def notes(self) -> list[str]:
        bit = self.task.digit_word
        tokens = self.shares.query("by == 'token'")
        training = tokens[tokens["subset"] == "train"].set_index(["seed", "name"])["share"].to_dict()
        return [
            f"seed {line.seed}: {bit} {line.name} {line.stuck}: {1 - line.share:.1%} held out, "
            f"{1 - training[line.seed, line.name]:.1%} in training"
            for line in tokens.query("stuck != ''").itertuples()
        ]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Counts of wrong answers, and how often each token is wrong after the right prefix."""
        shares, keys = self.shares, ["seed", "subset"]
        tokens = shares[shares["by"] == "token"].pivot(index=keys, columns="name", values="share")
        counts = shares.loc[shares["by"] == "answer", [*keys, "examples", "wrong"]]
        return counts.merge(tokens[self.task.answer_names].map("{:.1%}".format), on=keys)

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The shares, with the status of a stuck token in its name."""
        shares = self.shares
        statuses = shares[shares["stuck"] != ""].groupby("name")["stuck"].unique()
        labels = {name: "\n".join([name, *which]).replace(" ", "\n") for name, which in statuses.items()}
        return shares.assign(name=shares["name"].replace(labels))
