"""How often is the verdict of probe=mechanism right on networks whose algorithm is known?

    python -m arith_erd.paper.studies.mechanism TABLE.csv --seeds 1000-1019 --decoys 1000-1009 --untrained 5

Hand-coded networks must get their own name, decoys the name of the algorithm that they run, untrained networks
``none``. So must hand-coded networks of the two post-hoc algorithms, which answer right; ``near`` names those of the
two that the verdict calls near. And so must networks trained for `STEPS` steps on a table of random output: they answer
with bits, at chance, and have not memorised the table. Choose seeds on which no code was tuned; tuning used 0 to 99.
The samples are smaller than the probe's defaults, so the probe's verdicts are no worse. A network takes 7 s of one CPU
core. Signatures that the file already holds are not measured again, but all verdicts are made again.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import torch
from torch.nn import functional as F

from arith_erd.interp.algorithms import POST_HOC
from arith_erd.interp.hooked import Hooked
from arith_erd.mechanism import signature
from arith_erd.mechanism.signature import MeasuredSignature, Signature
from arith_erd.mechanism.verdict import MAX_DISTANCE, classify
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.models.handcoded import PROGRAMS, write_network
from arith_erd.models.network import shift_right
from arith_erd.seeds import parse_seeds
from arith_erd.tasks import Add, RandomOutput, Task

DECOYS = [name for name in PROGRAMS if name.endswith("_decoy")]
REFERENCES = [name for name in PROGRAMS if name not in (*DECOYS, *POST_HOC)]
MEASURED_COMPONENTS = (*signature.COMPONENTS, *signature.POST_HOC_PREFIXES)
SIGNATURE_COLUMNS = [f"{name}_{t}" for name in MEASURED_COMPONENTS for t in range(8)]
VERDICT = ["verdict", "distance", "nearest", "near"]
COLUMNS = ["network", "seed", "expected", *VERDICT, "accuracy", *SIGNATURE_COLUMNS]
NETWORK_CLASSES = {"Transformer": Transformer, "NanoGPT": NanoGPT}
RANDOM_OUTPUT_SUFFIX = " on random output"
STEPS, BATCH = 50, 64
PAIRS = 128  # smaller samples than the probe's


def labelled_networks(options: argparse.Namespace) -> Iterator[tuple[str, int, str]]:
    """Networks, seeds, and the verdicts that are right."""
    trained = [name + RANDOM_OUTPUT_SUFFIX for name in NETWORK_CLASSES]
    yield from ((name, seed, name) for seed in parse_seeds(options.seeds) for name in REFERENCES)
    yield from ((name, seed, name.removesuffix("_decoy")) for seed in parse_seeds(options.decoys) for name in DECOYS)
    yield from ((name, seed, "none") for seed in parse_seeds(options.others) for name in POST_HOC)
    yield from ((name, seed, "none") for seed in range(options.untrained) for name in NETWORK_CLASSES)
    yield from ((name, seed, "none") for seed in range(options.random_output) for name in trained)


def build_network(name: str, seed: int) -> Network:
    """A hand-coded network, a decoy, an untrained network, or one trained on random output."""
    if name in PROGRAMS:
        return write_network(name, seed).network
    torch.manual_seed(seed)
    network = NETWORK_CLASSES[name.removesuffix(RANDOM_OUTPUT_SUFFIX)](15, 8)
    if name.endswith(RANDOM_OUTPUT_SUFFIX):
        train(network, RandomOutput(seed=seed))
    return network.eval()


def train(network: Network, task: Task) -> None:
    """Train for `STEPS` steps on random batches of a task's examples."""
    examples = task.examples()
    prompt, completion = torch.from_numpy(examples.prompt), torch.from_numpy(examples.completion)
    optimizer = torch.optim.AdamW(network.eval().parameters(), lr=1e-3)  # no dropout
    for _ in range(STEPS):
        batch = torch.randint(len(prompt), (BATCH,))
        logits = network(prompt[batch], shift_right(completion[batch]))
        loss = F.cross_entropy(logits.flatten(0, 1), completion[batch].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def measure_network(name: str, seed: int) -> dict[str, float]:
    """The accuracy and the signature of a network, as columns."""
    measured = signature.measure_signature(Hooked(build_network(name, seed), task=Add()), PAIRS, PAIRS)
    flat = {f"{name}_{t}": value for name, values in measured.components.items() for t, value in enumerate(values)}
    return {"accuracy": measured.accuracy} | flat


def classify_row(row: pd.Series, expected: dict[str, Signature]) -> tuple[str, float, str, str]:
    """``verdict, distance, nearest, near`` on columns; ``near`` is empty where it was not measured."""
    components = {name: row[[f"{name}_{t}" for t in range(8)]].to_numpy(dtype=float) for name in MEASURED_COMPONENTS}
    measured = MeasuredSignature(float(row["accuracy"]), components)
    classification = classify(measured, expected)
    near = [name for name, distance in classification.post_hoc.items() if distance <= MAX_DISTANCE]
    return classification.verdict, classification.distance, classification.nearest, " ".join(near)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", default="1000-1019")
    parser.add_argument("--decoys", default="1000-1009")
    parser.add_argument("--others", default="1000-1009")
    parser.add_argument("--untrained", type=int, default=5)
    parser.add_argument("--random-output", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = (pd.read_csv(options.out) if options.out.is_file() else pd.DataFrame()).reindex(columns=COLUMNS)
    known = set(zip(rows["network"], rows["seed"], strict=True))
    expected = signature.expected_signatures(Add())
    for name, seed, right in labelled_networks(options):
        if (name, seed) not in known:
            measured = measure_network(name, seed)
            rows.loc[len(rows)] = pd.Series({"network": name, "seed": seed, "expected": right} | measured)
            rows.to_csv(options.out, index=False, float_format="%.4g")
    found = [classify_row(row, expected) for _, row in rows.iterrows()]
    rows[VERDICT] = pd.DataFrame(found, columns=VERDICT, index=rows.index)
    rows.to_csv(options.out, index=False, float_format="%.4g")
    is_right = rows["verdict"] == rows["expected"]
    print(f"{is_right.sum()} of {len(rows)} verdicts right ({is_right.mean():.1%})")
    print(pd.crosstab(rows["network"], rows["verdict"]))


if __name__ == "__main__":
    main()
