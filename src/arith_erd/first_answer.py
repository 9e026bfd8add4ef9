"""The command ``arith``, the first answer: which algorithm does a trained network run?

After right tokens every algorithm writes the same next one. So we exchange the answer bits that a network has written
for those of another sum: after these, algorithms differ. Hand-coded networks are the control.
"""

import argparse
import os
from dataclasses import replace
from itertools import count
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from .errors import UserError, unknown_name
from .system.files import atomic_file, require_writable, write_atomically

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from .interp.hooked import Hooked
    from .mechanism.profile import NetworkProfile

INTERCHANGES = 512
SAMPLE = {"num_examples": 128, "num_steered": 96}  # for probe=mechanism, whose own sizes take a minute
HANDCODED_LABEL = "by hand: "
NEXT = """
Next:
  arith erd                  the same for a hand-coded network; or for runs/NAME
  arith-train model=nanogpt  train a network; it prints its folder, runs/NAME
  arith-probe --help         what else can be measured inside a network"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="arith", description="Which algorithm does a network run that adds?")
    accepted = "a run directory, a name of ae.load_pretrained, or a network written by hand; default: add-transformer"
    parser.add_argument("network", nargs="?", default="add-transformer", help=accepted)
    name = parser.parse_args().network
    require_writable("folder", Path.cwd())
    print("loading PyTorch\n", flush=True)
    from .explorer import export_network, write_page
    from .plots.style import save_png

    model = load_adder(name)
    print("\n".join([*add_by_token(model), "", "Which algorithm does it run? A few seconds ..."]), flush=True)
    table = follow_interchanges(model)
    print("\n".join(fill(x, 79, subsequent_indent="  ") for x in explain(measure_profile(model), table)))
    png, page = unused_paths(f"arith-{Path(name).name}")
    with atomic_file(png) as partial:
        save_png(draw_interchanges(model, table), partial)
    write_atomically(page, write_page([export_network(model)]))
    print(f"\nWritten:\n  {png}   the interchanges\n  {page}  the network in a browser: change it and watch")
    print(NEXT)


def load_adder(name: str) -> "Hooked":
    """A run's first seed, a hand-coded network or a pretrained one; a `UserError` unless it adds two numbers."""
    from .catalog.export import CONFIG_FILE
    from .catalog.loading import list_pretrained, load_handcoded, load_pretrained, load_run
    from .models.handcoded import PROGRAMS
    from .tasks import Add

    folder, shipped = Path(name), list_pretrained()
    on_hub = len(folder.parts) == 2 and not folder.parent.is_dir()  # USER/NAME
    if (folder / "config.yaml").is_file():
        model = load_run(name)
    elif name in PROGRAMS:
        model = load_handcoded(name)
    elif name in shipped or (folder / CONFIG_FILE).is_file() or on_hub:
        model = load_pretrained(name)
    elif folder.exists():
        what = "a folder without config.yaml" if folder.is_dir() else "a file"
        raise UserError(f"network={name}: {what}; expected a run directory")
    elif len(folder.parts) > 1:
        raise UserError(f"network={name}: no such folder")
    else:
        accepted = f"a run directory, a trained network ({', '.join(shipped)}), or one written by hand"
        raise unknown_name("network", name, [*shipped, *PROGRAMS], f"{accepted} ({', '.join(PROGRAMS)})")
    if type(model.task) is not Add:
        raise UserError(f"network={name}: its task is {model.task.name}; expected a network that adds two numbers")
    model.task.require_enumerable("arith")
    return model


def add_by_token(model: "Hooked") -> list[str]:
    """The sum with the longest carry as the network writes it, with the probability that it gives to each token."""
    from .digits import render
    from .models.network import shift_right

    task = model.task
    examples = task.examples([task.limit - 1], [1])
    tokens = model.greedy_tokens(examples)  # (1, m)
    probabilities = model.run((model.inputs(examples)[0], shift_right(tokens))).softmax(-1).amax(-1)[0]
    (prompt,), (written,) = render(examples.prompt, task.operator), render(tokens.cpu().numpy())
    answer, right = int(task.decode(tokens.cpu().numpy())[0]), int(examples.answer[0])
    cells = {"token": task.answer_names, "it writes": written, "sure": [f"{x:.0%}" for x in probabilities.tolist()]}
    return [
        f"{model.name}: {sum(x.numel() for x in model.network.parameters()):,} parameters",
        f"{task.limit - 1} + 1, lowest bit first: {prompt}",
        *(f"  {title:9}" + "".join(f"{cell:>6}" for cell in row) for title, row in cells.items()),
        f"  That is {answer}, " + ("the right answer." if answer == right else f"a wrong answer: it is {right}."),
    ]


def follow_interchanges(model: "Hooked") -> "pd.DataFrame":
    """How often each algorithm (column) predicts the next bit after an interchange, in the network and in controls.

    Only bits on which the algorithms differ count, except those for which rounding is a close call. Algorithms with the
    same predictions share a column.
    """
    import numpy as np
    import pandas as pd

    from .catalog.loading import load_handcoded
    from .interp.algorithms import ALGORITHMS, CLOSE_CALL, PREFIX
    from .interp.causal_model import CausalModel
    from .interp.counterfactuals import CounterfactualDataset
    from .models.handcoded import is_handcoded_task

    task = model.task
    data = CounterfactualDataset.sample(CausalModel(task), n=INTERCHANGES)
    by_bits: dict[bytes, list[str]] = {}
    bits, clear = {}, np.ones((INTERCHANGES, task.width), dtype=bool)
    for name, algorithm in ALGORITHMS.items():
        models = (algorithm.causal_model(task, threshold) for threshold in CLOSE_CALL)
        bits[name], other = (replace(data, causal_model=rule).expected(PREFIX) for rule in models)
        clear &= bits[name] == other
        by_bits.setdefault(bits[name].tobytes(), []).append(name)
    predicted = {" or ".join(names): bits[names[0]] for names in by_bits.values()}
    clear &= np.ptp([*predicted.values()], axis=0) > 0
    networks = {"the network": model}
    if is_handcoded_task(task):
        networks |= {HANDCODED_LABEL + names[0]: load_handcoded(names[0]) for names in by_bits.values()}
    rows = {}
    for name, network in networks.items():
        inputs = network.inputs(data.base_examples)[0], network.inputs(data.source_examples)[1]
        tokens = network.run(inputs).argmax(-1).cpu().numpy()
        rows[name] = {algorithm: (tokens == task.to_tokens(x))[clear].mean() for algorithm, x in predicted.items()}
    return pd.DataFrame.from_dict(rows, orient="index")


def measure_profile(model: "Hooked") -> "NetworkProfile":
    """The verdict of ``probe=mechanism``, from a small sample."""
    from .probes.mechanism import Mechanism
    from .probes.run_probe import probe

    measured = probe("mechanism", model, **SAMPLE).probe
    assert isinstance(measured, Mechanism)
    return measured.profiles[0]


def name_algorithm(profile: "NetworkProfile") -> tuple[str, str, list[str]]:
    """The algorithm's name, empty if none fits, what to say of it, and what is not sure about it."""
    from .interp.algorithms import ALGORITHMS
    from .mechanism.verdict import MAX_DISTANCE, MIN_ACCURACY

    name, nearest, reasons = profile.verdict, profile.nearest, list(profile.reasons)
    if profile.accuracy < MIN_ACCURACY:
        return "", f"none that we know: only {profile.accuracy:.0%} of its answers are right", reasons
    if name == "mixed":
        return "", f"a mixture. That is, {nearest}", reasons
    if name in ALGORITHMS:
        return name, f"{name}. That is, it {ALGORITHMS[name].description}", reasons
    fitting = {name: x for name, x in profile.post_hoc.items() if x is not None and x <= MAX_DISTANCE}
    if not fitting:
        return "", f"not known; the nearest is {nearest}", reasons
    name = min(fitting, key=fitting.__getitem__)
    by_design = (
        f"we wrote {name} down after we had seen such networks, so it may fit by design. None of the earlier "
        f"algorithms fits; the nearest is {nearest}, at {profile.distance:.1f} times the distance that the tests allow"
    )
    return name, f"like {name}. That is, it {ALGORITHMS[name].description}", [by_design]


def explain(profile: "NetworkProfile", table: "pd.DataFrame") -> list[str]:
    """Paragraphs on the algorithm, how it is known, and what is not sure, from the table of `follow_interchanges`."""
    from .mechanism.profile import UNCALIBRATED

    name, verdict, doubts = name_algorithm(profile)
    closest, second = table.iloc[0].sort_values(ascending=False).index[:2]
    if name and name not in closest.split(" or "):
        doubts.append(f"the interchanges are closer to {closest}")
    share, next_share = table.iloc[0][[closest, second]]
    lines = [f"Its algorithm: {verdict}.", "", "How that is known"]
    lines.append(
        f"- Interchange: in {INTERCHANGES} sums we exchange the answer bits already written for those of another sum. "
        f"Where algorithms then differ, {closest} predicts {share:.0%} of its next bits, and {second} {next_share:.0%}."
    )
    if len(controls := table[closest].iloc[1:]):
        known = HANDCODED_LABEL + closest.partition(" or ")[0]
        low, high = controls.drop(known).min(), controls.drop(known).max()
        lines.append(
            f"- Control: it predicts {controls[known]:.0%} of these bits in a network written by hand to run it, and "
            f"{low:.0%} to {high:.0%} in networks written to run others."
        )
        if share <= high:
            doubts.append(f"a network written to run another algorithm agrees with {closest} as often or more")
    doubts += [] if profile.calibrated else [UNCALIBRATED]
    doubts.append("after bits that it writes itself, a network may compute in another way")
    return [*lines, f"- {profile.steering}", "", "What is not sure", *(f"- {doubt}." for doubt in doubts)]


def draw_interchanges(model: "Hooked", table: "pd.DataFrame") -> "Figure":
    """The table of `follow_interchanges` as a heat map."""
    from .plots import style
    from .plots.panels import HeatMaps

    rows = table.rename_axis("network").reset_index().melt("network", var_name="algorithm", value_name="share")
    rows["algorithm"] = rows["algorithm"].str.replace(" or ", " or\n")
    xlabel = "algorithm that predicts the bit"
    figure = HeatMaps("share", "algorithm", "network", xlabel=xlabel, number_format=".0%", cell=(1.4, 0.35)).draw(rows)
    style.set_figure_title(figure, model.task.name, "whose bits does it write after an interchange?", rows)
    return figure


def unused_paths(stem: str) -> tuple[Path, Path]:
    """Paths of a PNG and a page in the current folder, numbered if one exists, so that no file is overwritten."""
    for number in count(1):
        png, page = (Path(f"{stem}{f'-{number}' if number > 1 else ''}{suffix}") for suffix in (".png", ".html"))
        if not (os.path.lexists(png) or os.path.lexists(page)):
            break
    return png, page
