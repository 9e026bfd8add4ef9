"""Numbers with their unit, as people write them; the only place where a number of the report becomes text."""

import math

from ..stats import Estimate, Interval

UNITS = (
    *("accuracy", "points", "percent", "epochs", "ratio", "layer", "value", "correlation", "minutes"),
    *("count", "tokens", "examples", "bits", "parameters", "operations"),
)
NAMES = {"points": " points", "ratio": " times", "epochs": " epochs", "minutes": " min"}
NAMES |= {unit: f" {unit}" for unit in ("tokens", "examples", "bits")}


def number(value: float, unit: str, brief: bool = False) -> str:
    """``99.98%``, ``6.31 points``, ``38.5 epochs``. ``brief`` is for the paper's numbers, which have fewer digits."""
    digits = bare(value, unit, brief)
    return f"layer {digits}" if unit == "layer" else f"{digits}{NAMES.get(unit, '')}"


def estimated(estimate: Estimate, unit: str) -> str:
    """``99.9%``, ``> 50 epochs``, ``1.20 to 1.25 times``: what an estimate can be."""
    if estimate.value is not None:
        return number(estimate.value, unit)
    if math.isinf(estimate.high):
        return f"> {number(estimate.low, unit)}"
    return f"{bare(estimate.low, unit)} to {number(estimate.high, unit)}"


def interval_text(interval: Interval | None, unit: str) -> str:
    """``[99.7, 100]``, in the unit of the number that it stands behind; nothing where there is none."""
    return "" if interval is None else f"[{', '.join(bare(end, unit).rstrip('%') for end in interval)}]"


def bare(value: float, unit: str, brief: bool = False) -> str:
    """The number without the name of its unit; a percent sign stays."""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    match unit:
        case "accuracy":
            digits = 1 if brief or round(100 * value, 2) in (0, 100) else 2
            digits = 2 if 0 < value < 0.005 else digits
            return f"{100 * value:.{digits}f}".removesuffix(".0") + "%"
        case "points":
            text = f"{100 * value:.{1 if brief else 2}f}"
            return text.removeprefix("-") if float(text) == 0 else text
        case "percent":
            return f"{value:.{1 if brief else 2}f}%"
        case "ratio" | "epochs":
            return f"{value:.2f}" if unit == "ratio" else f"{value:.4g}"
        case "operations":
            return f"{value / 1e12:.{0 if brief else 1}f}e12"
        case "parameters":
            return f"{value / 1000:.0f}K" if brief else f"{value:,.0f}"
        case "tokens" | "examples" | "bits" | "count" | "layer":
            if value >= 1e6:
                return f"{value / 1e6:.{0 if brief else 2}f}M"
            return f"{value:,.10g}" if value == int(value) else f"{value:.2f}"
        case _:
            return f"{value:.3g}"
