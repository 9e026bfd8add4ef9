"""What `epoch` has measured, as tables for people."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from rich.table import Table

from arith_erd.seeds import parse_seeds

PHASES = ("training", "evaluation", "rest", "total")
Result = dict[str, Any]


def mean_total(measured: Result) -> float:
    """Seconds of an epoch."""
    return sum(epoch["total"] for epoch in measured["epochs"]) / len(measured["epochs"])


def heading(result: Result) -> str:
    machine, versions = result["machine"], result["versions"]
    return (
        f"{machine['cpu']}, {machine['cores']} usable cores, load {machine['load'][0]:.1f}; "
        f"{result['threads']} threads; device: {result['device']}, {'compiled' if result['compiled'] else 'eager'}\n"
        f"arith_erd {versions['arith_erd']} ({versions['commit']}), Python {versions['python']}, "
        f"torch {versions['torch']}, Lightning {versions['lightning']}"
    )


def epoch_table(result: Result) -> Table:
    """A row a repeat, in the order in which they ran; the ratio is of the medians, and per seed."""
    measured = result["epoch"]
    seeds = len(parse_seeds(measured["seeds"]))
    title = f"one epoch: task={result['task']} model={result['model']}, {seeds} replica(s); seconds"
    if result["extrapolated"]:
        title += f"\nEXTRAPOLATED from {result['fraction']:.3g} of the examples"
    table = Table("", *PHASES, "peak memory", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    ours, theirs = measured["ours"], measured.get("theirs", [])
    for repeat, our in enumerate(ours):
        table.add_row("ours", *phases(our), memory(our))
        if theirs:
            table.add_row("authors'", *phases(theirs[repeat]), memory(theirs[repeat]))
    our_median = median(map(mean_total, ours))
    table.add_section()
    table.add_row("ours, median", "", "", "", f"{our_median:.2f}", "")
    if theirs:
        their_median = median(map(mean_total, theirs))
        table.add_row("authors', median", "", "", "", f"{their_median:.2f}", "")
        low, high = min(measured["ratios"]), max(measured["ratios"])
        table.add_row(
            "times faster, per seed", "", "", "", f"{seeds * their_median / our_median:.2f}", f"{low:.2f} to {high:.2f}"
        )
    return table


def phases(measured: Result) -> list[str]:
    """Means over the epochs of one repeat; theirs have no ``rest``."""
    epochs = measured["epochs"]
    return [
        f"{sum(epoch[phase] for epoch in epochs) / len(epochs):.2f}" if phase in epochs[0] else "" for phase in PHASES
    ]


def memory(measured: Result) -> str:
    peak = measured["memory"]
    text = f"{peak['resident'] / 2**30:.2f} GiB"
    return text if peak["device"] is None else f"{text}, device {peak['device'] / 2**30:.2f} GiB"


def pack_table(packs: Sequence[Result]) -> Table:
    """Medians over the repeats; a step is compared with that of a bare loop and with its matrix products alone."""
    table = Table(title="training steps, alone and under Lightning")
    columns = (
        "replicas",
        "bare steps/s",
        "steps/s",
        "replica-steps/s",
        "Lightning's",
        "times the floor",
        "peak memory",
    )
    for name in columns:
        table.add_column(name, justify="right")
    for pack in packs:
        bare, lightning = (median(pack["seconds_per_step"][loop]) for loop in ("bare", "lightning"))
        table.add_row(
            str(pack["replicas"]),
            f"{1 / bare:.2f}",
            f"{1 / lightning:.2f}",
            f"{pack['replicas'] / lightning:.2f}",
            f"{1e3 * (lightning - bare):+.2f} ms, {lightning / bare - 1:+.1%}",
            f"{bare / pack['floor']:.1f}",
            memory(pack),
        )
    return table


def profile_table(operators: Sequence[Result], replicas: int) -> Table:
    table = Table(title=f"self time by operator, training steps of {replicas} replica(s)")
    for name in ("operator", "calls a step", "ms a step", "share"):
        table.add_column(name, justify="left" if name == "operator" else "right", overflow="fold")
    for row in operators:
        table.add_row(row["operator"], f"{row['calls']:.0f}", f"{row['milliseconds']:.2f}", f"{row['share']:.1%}")
    return table
