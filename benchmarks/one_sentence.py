"""Count the prediction of results/preregistration.md: one sentence about how trained networks add.

    python benchmarks/one_sentence.py results/one-sentence.csv runs/add-random-* path/to/add_model reference:erd:0

An argument is a run directory (all its seeds), a file with the authors' addition weights, or ``reference:NAME:SEED``.
Everything is measured on seven-bit addition, at position t of the answer, from networks in evaluation mode:

    slopes       logistic regression of bit t on the operands' bits and the prefix bits below t
    threshold    the rule parity(round(a_t + b_t + c)) with a threshold fitted on other prefixes
    swap         what position t reads of the prompt, exchanged between runs of the same prefix and opposite carries
    vectors      the encoder replaced by its mean output for each token and position (29 vectors)
    interchange  the residual stream of position t, from a run with the same c, or with c + 1

c = (a mod 2^t + b mod 2^t - p) / 2^t, with p the number that the prefix spells: the carry, if the prefix is right.
Examples are drawn from fixed seeds, the same for every network. A network takes about a minute of one core.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import arith_erd
from arith_erd.bits import ONE, START, ZERO, Array, to_bits
from arith_erd.models import NanoGPT, Network
from arith_erd.models.authors_weights import load_official
from arith_erd.models.references import reference
from arith_erd.splits import Split
from arith_erd.tasks import Add

TASK = Add()
BITS, WIDTH, LAYERS = TASK.bits, TASK.width, 6
SITES = {"transformer": "dec.5.resid_mid_cross", "nanogpt": "dec.3.resid_mid", "reference": "dec.6"}
DRAWS, SWAPS, BATCH = 4096, 256, 1024
COUNTED = range(2, 7)  # bits of the score; bit 7 is measured too, but has no column of its own
Rows = Iterator[dict[str, Any]]

# name: measures, how bits and places are put together, at least or at most, and the bound of the preregistration
Criteria = dict[str, tuple[tuple[str, ...], str, str, float]]
OWN_CARRY: Criteria = {
    "swap_own": (("swap_own",), "mean", "at least", 0.99),
    "swap_earlier": (("swap_earlier",), "mean", "at most", 0.01),
    "more_c": (("interchange_plus_low",), "mean", "at least", 0.90),
}
TRANSFORMER: Criteria = OWN_CARRY | {
    "slopes": (("slope_operands_error", "slope_prefix_error"), "max", "at most", 0.20),
    "agreement": (("agreement_local_remainder",), "mean", "at least", 0.90),
    "equal_c": (("interchange_equal",), "mean", "at most", 0.15),
    "vectors": (("vectors",), "mean", "at least", 0.99),
}
GRADED: Criteria = OWN_CARRY | {
    "graded_agreement": (("agreement_graded_carry",), "mean", "at least", 0.90),
    "graded_form": (("form",), "mean", "at most", 0.10),
    "graded_range": (("interchange_plus_high",), "mean", "at most", 0.10),
}


@dataclass(frozen=True)
class Subject:
    """A network, its kind (a key of `SITES`), and the split it was trained on, if known."""

    name: str
    seed: int
    kind: str
    network: Network
    split: Split | None = None


@dataclass(frozen=True)
class Inputs:
    """N pairs of operands, and the numbers that their prefixes of t bits spell; each (N,)."""

    t: int
    a: Array
    b: Array
    prefix: Array

    @property
    def low(self) -> Array:
        """(N,) a mod 2^t + b mod 2^t."""
        return self.a % 2**self.t + self.b % 2**self.t

    @property
    def c(self) -> Array:
        return (self.low - self.prefix) / 2.0**self.t  # type: ignore[return-value]

    @property
    def column(self) -> Array:
        """(N,) a_t + b_t, 0 to 2."""
        return (self.a >> self.t & 1) + (self.b >> self.t & 1)

    def tokens(self) -> tuple[Tensor, Tensor]:
        """The prompt (N, P), and the decoder's input up to position t, (N, t + 1)."""
        prefix = to_bits(self.prefix, self.t) + ZERO
        start = np.full((len(prefix), 1), START)
        return torch.from_numpy(TASK.examples(self.a, self.b).prompt), torch.from_numpy(np.hstack([start, prefix]))

    def held_out(self, rng: np.random.Generator) -> np.ndarray:
        """(N,) bool: half of the combinations of low operand bits and prefix, with all their draws."""
        size = 2**self.t
        key = (self.a % size * size + self.b % size) * size + self.prefix
        return rng.random(size**3)[key] < 0.5


def generator(measure: str, t: int) -> np.random.Generator:
    return np.random.default_rng([*measure.encode(), t])


def with_low(rng: np.random.Generator, t: int, low_a: Array, low_b: Array, prefix: Array, column: bool) -> Inputs:
    """Random bits above the low ones; bits t are 0 unless ``column``."""
    first = t if column else t + 1
    high = rng.integers(0, 2 ** max(BITS - first, 0), (2, len(low_a))) << first
    return Inputs(t, high[0] + low_a, high[1] + low_b, prefix)


def random_inputs(rng: np.random.Generator, t: int, column: bool) -> Inputs:
    low_a, low_b, prefix = rng.integers(0, 2**t, (3, DRAWS))
    return with_low(rng, t, low_a, low_b, prefix, column)


@torch.no_grad()
def encoded(network: Network) -> Tensor:
    """The encoder's output for every pair of operands, in the order of `TASK.examples`: (16384, ...)."""
    return torch.cat([network.encode(part) for part in torch.from_numpy(TASK.examples().prompt).split(BATCH)])


@torch.no_grad()
def answers(network: Network, memory: Tensor, inputs: Inputs) -> Array:
    """Bit t (N,) that the network prefers, of 0 and 1; ``memory`` is that of `encoded`."""
    of_pairs = memory[torch.from_numpy(inputs.a * TASK.limit + inputs.b)]
    parts = zip(of_pairs.split(BATCH), inputs.tokens()[1].split(BATCH), strict=True)
    return preferred(torch.cat([network.decode(m, x) for m, x in parts]))


def preferred(logits: Tensor) -> Array:
    """Logits (N, t + 1, V) -> bit t (N,), the likelier one of 0 and 1."""
    return (logits[:, -1, ONE] > logits[:, -1, ZERO]).long().numpy()


@contextmanager
def hooked(modules: Sequence[nn.Module], hook: Callable[..., Any]) -> Iterator[None]:
    """Call ``hook(module, args, kwargs, output)`` after each module."""
    handles = [module.register_forward_hook(hook, with_kwargs=True) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def slopes(network: Network, memory: Tensor) -> Rows:
    """Slopes by place, divided by that of the operands' bits t - 1. The column is empty: a_t = b_t = 0.

    Slopes come from all draws. The accuracy is that of a fit to one half of the combinations on the other half.
    """
    for t in range(2, WIDTH):
        rng = generator("slopes", t)
        inputs = random_inputs(rng, t, column=False)
        test = inputs.held_out(rng)
        bits = answers(network, memory, inputs)
        places = [to_bits(x, t) for x in (inputs.a, inputs.b, inputs.prefix)]
        features = np.hstack(places) - 0.5
        if len(set(bits[~test])) < 2:  # a constant answer has no slopes
            continue
        model = LogisticRegression(C=100.0, max_iter=2000)
        predicted = model.fit(features[~test], bits[~test]).predict(features[test])
        yield {"measure": "slope_accuracy", "bit": t, "value": (predicted == bits[test]).mean(), "n": test.sum()}
        fitted = model.fit(features, bits)
        of_a, of_b, of_prefix = fitted.coef_.reshape(3, t)
        of_operands = (of_a + of_b) / 2
        for place in range(t):
            right = 2.0 ** (place - t + 1)
            for name, slope, sign in (("operands", of_operands, 1), ("prefix", of_prefix, -1)):
                value = slope[place] / of_operands[-1]
                yield {"measure": f"slope_{name}", "bit": t, "place": place, "value": value}
                yield {"measure": f"slope_{name}_error", "bit": t, "place": place, "value": abs(value - sign * right)}


def rule(name: str, inputs: Inputs, threshold: float) -> Array:
    """Bit t (N,) by ``local_remainder`` (numbers of a right prefix), ``remainder`` (any number) or ``graded_carry``."""
    if name == "graded_carry":
        return inputs.column % 2 ^ (inputs.c > threshold)
    total = np.floor(inputs.column + inputs.c + 1 - threshold).astype(np.int64)
    most = 1 if inputs.t == WIDTH - 1 else 3
    return (np.clip(total, 0, most) if name == "local_remainder" else total) % 2


def prefix_carry(inputs: Inputs) -> Array:
    """Bit t (N,) if the carry is read off the column before: the majority of a_(t-1), b_(t-1) and not r_(t-1)."""
    before = inputs.t - 1
    votes = (inputs.a >> before & 1) + (inputs.b >> before & 1) + 1 - (inputs.prefix >> before & 1)
    return inputs.column % 2 ^ (votes >= 2)


def threshold(network: Network, memory: Tensor) -> Rows:
    """Each rule with its threshold fitted on one half of the prefixes, and its agreement on the other half.

    Thresholds lie between the values that c can take, so no prefix is dropped. Those with |right - given| = 2^t / 2,
    on which a threshold of 1/2 is undecided, are counted again by themselves.
    """
    for t in range(2, WIDTH):
        rng = generator("threshold", t)
        inputs = random_inputs(rng, t, column=True)
        test = inputs.held_out(rng)
        bits = answers(network, memory, inputs)
        ties = inputs.c % 1 == 0.5
        half = np.where(ties, 0.5, rule("local_remainder", inputs, 0.5) == bits)[test]
        yield {"measure": "agreement_half", "bit": t, "value": half.mean(), "n": test.sum()}  # a tie counts as 1/2
        yield {"measure": "ties", "bit": t, "value": ties[test].mean(), "n": test.sum()}
        expected = {}
        for name in ("local_remainder", "graded_carry", "remainder"):
            candidates = (np.arange(2**t) + 0.5) / 2**t
            right = [(rule(name, inputs, x) == bits)[~test].mean() for x in candidates]
            best = float(np.median(candidates[np.isclose(right, max(right))]))
            best = candidates[np.abs(candidates - best).argmin()]
            expected[name] = rule(name, inputs, best)
            yield {"measure": f"threshold_{name}", "bit": t, "value": best}
            agree = expected[name] == bits
            yield {"measure": f"agreement_{name}", "bit": t, "value": agree[test].mean(), "n": test.sum()}
            if name == "local_remainder":
                yield {
                    "measure": "agreement_ties",
                    "bit": t,
                    "value": agree[test & ties].mean(),
                    "n": (test & ties).sum(),
                }
        agree = prefix_carry(inputs) == bits
        yield {"measure": "agreement_prefix_carry", "bit": t, "value": agree[test].mean(), "n": test.sum()}
        differ = test & (expected["local_remainder"] != expected["graded_carry"])
        if differ.any():
            share = (expected["local_remainder"] == bits)[differ].mean()
            yield {"measure": "form", "bit": t, "value": share, "n": differ.sum()}


def readers(network: Network) -> list[nn.Module]:
    """The attentions through which answer positions read the prompt."""
    sites, name = network.sites(), "attn_out" if isinstance(network, NanoGPT) else "cross_attn_out"
    return [sites[f"dec.{layer}.{name}"] for layer in range(1, LAYERS + 1)]


@torch.no_grad()
def read_elsewhere(network: Network, base: Inputs, source: Inputs, positions: Sequence[int]) -> Array:
    """Bit t (N,) of the base runs, if these answer positions read the prompt of the source runs in every layer.

    In an encoder-decoder they attend to the encoder's output of the source run. In a decoder-only network they attend
    to the prompt positions of the source run; keys and values of the answer positions stay those of the base run.
    """
    prompt_length = TASK.prompt_length
    decoder_only = isinstance(network, NanoGPT)
    seen: dict[nn.Module, Tensor] = {}

    def remember(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        seen[module] = args[0][:, :prompt_length] if decoder_only else args[1]

    def exchange(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Tensor:
        x, *rest = args
        changed = (
            (torch.cat([seen[module], x[:, prompt_length:]], dim=1), *rest)
            if decoder_only
            else (x, seen[module], *rest[1:])
        )
        other = module.forward(*changed, **kwargs)  # not a call: that would run this hook again
        at = [output.shape[1] - (base.t + 1) + position for position in positions]
        result = output.clone()
        result[:, at] = other[:, at]
        return result

    with hooked(readers(network), remember):
        network(*source.tokens())
    with hooked(readers(network), exchange):
        return preferred(network(*base.tokens()))


def swap_inputs(t: int) -> tuple[Inputs, Inputs]:
    """Two runs with the same bits from t on, the same right prefix p, and low sums p and p + 2^t, in either order."""
    rng = generator("swap", t)
    prefix = rng.integers(0, 2**t - 1, SWAPS)
    without, carrying = rng.integers(0, prefix + 1), rng.integers(prefix + 1, 2**t)
    run = with_low(rng, t, np.zeros_like(prefix), np.zeros_like(prefix), prefix, column=True)
    runs = [
        replace(run, a=run.a + low, b=run.b + total - low)
        for low, total in ((without, prefix), (carrying, prefix + 2**t))
    ]
    turned = rng.random(SWAPS) < 0.5
    first, second = (
        Inputs(t, *(np.where(turned, y, x) for x, y in ((u.a, v.a), (u.b, v.b))), prefix)  # type: ignore[call-arg]
        for u, v in (runs, runs[::-1])
    )
    return first, second


def swap(network: Network, memory: Tensor) -> Rows:
    """Flips of bit t where the source run has the other carry and the same prefix."""
    for t in range(1, WIDTH):
        base, source = swap_inputs(t)
        before = answers(network, memory, base)
        for name, positions in (("own", [t]), ("earlier", range(t))):
            flips = read_elsewhere(network, base, source, list(positions)) != before
            yield {"measure": f"swap_{name}", "bit": t, "value": flips.mean(), "n": SWAPS}


@torch.no_grad()
def vectors(network: Network, memory: Tensor, split: Split | None) -> Rows:
    """Share of all pairs answered right, with the mean encoder output of each token and position in training pairs."""
    examples = TASK.examples()
    prompt, completion = torch.from_numpy(examples.prompt), torch.from_numpy(examples.completion)
    answer_in = torch.cat([torch.full((len(prompt), 1), START), completion[:, :-1]], dim=1)

    def accuracy(memory: Tensor) -> float:
        parts = zip(memory.split(BATCH), answer_in.split(BATCH), completion.split(BATCH), strict=True)
        return float(torch.cat([(network.decode(m, x).argmax(-1) == y).all(-1) for m, x, y in parts]).double().mean())

    yield {"measure": "accuracy", "value": accuracy(memory), "n": len(prompt)}
    if isinstance(network, NanoGPT):
        return
    training = torch.ones(len(prompt), dtype=torch.bool) if split is None else ~torch.from_numpy(split(examples))
    table = memory.clone()
    for position in range(prompt.shape[1]):
        for token in prompt[:, position].unique():
            here = prompt[:, position] == token
            table[here, position] = memory[here & training, position].mean(0)
    yield {"measure": "vectors", "value": accuracy(table), "n": len(prompt)}


def match_c(rng: np.random.Generator, base: Inputs, above: int) -> Inputs:
    """Other operands and prefixes of an empty column, with c larger by ``above`` than in the base runs."""
    t = base.t
    wanted = base.low - base.prefix + above * 2**t
    low_a, low_b, prefix = np.zeros_like(base.a), np.zeros_like(base.a), np.full_like(base.a, -1)
    while (missing := np.flatnonzero((prefix < 0) | (prefix >= 2**t))).size:
        low_a[missing], low_b[missing] = rng.integers(0, 2**t, (2, missing.size))
        prefix[missing] = low_a[missing] + low_b[missing] - wanted[missing]
    return with_low(rng, t, low_a, low_b, prefix, column=False)


@torch.no_grad()
def interchanged(network: Network, site: str, base: Inputs, source: Inputs) -> Array:
    """Bit t (N,) of the base runs, with the stream of position t at the site from the source runs."""
    module, kept = network.sites()[site], []

    def remember(module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> None:
        kept.append(output[:, -1])

    def put(module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor:
        return torch.cat([output[:, :-1], kept[0][:, None]], dim=1)

    with hooked([module], remember):
        network(*source.tokens())
    with hooked([module], put):
        return preferred(network(*base.tokens()))


def interchange(network: Network, memory: Tensor, site: str) -> Rows:
    """Random prefixes, an empty column, 0 <= c < 1 in the base run; the source run has c, or c + 1.

    In ``plus_low`` the base run answers 0, so the source run is expected to answer 1. In ``plus_high`` it answers 1; a
    number that can leave the range of a carry makes it 0 again, a carry of two states does not.
    """
    for t in COUNTED:
        rng = generator("interchange", t)
        drawn = random_inputs(rng, t, column=False)
        keep = np.flatnonzero((drawn.c >= 0) & (drawn.c < 1) & (drawn.low - drawn.prefix < 2**t - 1))[:SWAPS]
        base = Inputs(t, drawn.a[keep], drawn.b[keep], drawn.prefix[keep])
        before = answers(network, memory, base)
        equal = interchanged(network, site, base, match_c(rng, base, 0)) != before
        more = interchanged(network, site, base, match_c(rng, base, 1)) != before
        yield {"measure": "interchange_equal", "bit": t, "value": equal.mean(), "n": len(equal)}
        for name, chosen in (("low", before == 0), ("high", before == 1)):
            if chosen.any():
                row = {"measure": f"interchange_plus_{name}", "bit": t}
                yield row | {"value": more[chosen].mean(), "n": chosen.sum()}


def subjects(argument: str) -> Iterator[Subject]:
    """The networks that an argument of the command line names."""
    if argument.startswith("reference:"):
        _, name, seed = argument.split(":")
        yield Subject(name, int(seed), "reference", reference(name, int(seed)).network)
    elif Path(argument).is_dir():
        for entry in json.loads((Path(argument) / "summary.json").read_text())["seeds"]:
            run = arith_erd.load_run(argument, entry["seed"])
            kind = "nanogpt" if isinstance(run.network, NanoGPT) else "transformer"
            yield Subject(kind, run.seed, kind, run.network, run.split)
    else:
        yield Subject("authors", 0, "transformer", load_official(argument, TASK))


def measure(subject: Subject) -> pd.DataFrame:
    network = subject.network.eval()
    memory = encoded(network)
    rows = [
        *vectors(network, memory, subject.split),
        *slopes(network, memory),
        *threshold(network, memory),
        *swap(network, memory),
        *interchange(network, memory, SITES[subject.kind]),
    ]
    found = pd.DataFrame(rows, columns=["measure", "bit", "place", "value", "n"])
    found.insert(0, "network", subject.name)
    found.insert(1, "seed", subject.seed)
    return found


def score(found: pd.DataFrame) -> pd.DataFrame:
    """A row for each network: accuracy, every criterion over the `COUNTED` bits, and the bounds missed."""
    rows = []
    for (name, seed), table in found.groupby(["network", "seed"], sort=False):
        of_bits = table[table["bit"].isna() | table["bit"].isin(COUNTED)]
        row: dict[str, Any] = {"network": name, "seed": seed, "missed": ""}
        row["accuracy"] = table.loc[table["measure"] == "accuracy", "value"].iloc[0]
        predicted = GRADED if name == "nanogpt" else TRANSFORMER
        for criterion, (measures, together, direction, bound) in (TRANSFORMER | GRADED).items():
            row[criterion] = value = of_bits.loc[of_bits["measure"].isin(measures), "value"].agg(together)
            met = value <= bound if direction == "at most" else value >= bound  # not met if nothing was measured
            if criterion in predicted and not met:
                row["missed"] += f" {criterion}"
        rows.append(row)
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("networks", nargs="*", help="none: print the score of OUT as it is")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tables = []
    for argument in options.networks:
        for subject in subjects(argument):
            tables.append(measure(subject))
            pd.concat(tables).to_csv(options.out, index=False, float_format="%.5g")
    print(score(pd.read_csv(options.out)).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
