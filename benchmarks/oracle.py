"""Does the program still do what it did? Records what a checkout does, and compares it with another or with results/.

    python benchmarks/oracle.py record DIR                      # in the checkout, all parts; a new DIR for new code
    python benchmarks/oracle.py record DIR --part runs --part claims
    python benchmarks/oracle.py record DIR_B --from DIR_A       # resumes the half-trained run that DIR_A keeps
    python benchmarks/oracle.py record DIR_B --results FOLDER   # reads the published runs of another commit
    python benchmarks/oracle.py compare DIR_A DIR_B             # exit status 1 on any difference
    python benchmarks/oracle.py compare committed DIR_B         # the tables of results/

A part is a flat JSON object, value by key. Only commands and the files they write are used; `names` and `of_card` alone
know the Python API and the columns of a card. What DIR/work holds already is not run again.

    part               content                                                                          CPU minutes
    runs               names of 46 configurations; weights and metrics of 5 tiny runs, bit for bit      2
    resumed            a run killed half-trained and resumed, bit for bit                               1
    old                published runs: the report's numbers, the errors of probe=errors, all exact      4
    claims             claims.csv by the report from results/runs and results/older, all exact          1
    calibration        24 networks of mechanism-calibration-fresh.csv, within rounding                  10
    reference_probes   reference-probes.csv, within rounding                                            10
    cards              our networks of seed 0, the authors' with --authors FILE, within rounding        1 a card
"""

import argparse
import csv
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

Values = dict[str, str]
ROOT = Path.cwd()
RESULTS = ROOT / "results"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
TOLERANCE = 1e-3  # of the committed tables, four digits
SHOWN = 20
RENAMED: list[tuple[str, str]] = []  # (expression, what it is replaced by) in keys of both sides: new names to old ones

NAMED = [
    *("", "task=mul", "task=random_output", "task=sub", "task=mod_add", "task=add3", "split=vs_t", "split=vs_v"),
    *("model=nanogpt", "task=mul model=nanogpt seed=0-4", "task=mul split=vs_t", "task=mul split=vs_v model=nanogpt"),
    *(f"ablation={name}" for name in ("squeezed_encoder", "one_head", "d_model_32", "no_positional_encoding")),
    *("ablation=no_attention", "ablation=no_feed_forward trainer.max_epochs=1000 trainer.stop_at=0.95 seed=3"),
    *("ablation=d_model_32 trainer.stop_at=0.95 trainer.max_epochs=1000 seed=0", "seed=0-4", "seed='0-4,7'"),
    *("task.bits=4 model.net.num_heads=4", "task.base=10 task.bits=3", "task.prompt_order=plain", "split.fraction=0.5"),
    *("task.completion_order=plain model=nanogpt", "split.seed=3", "task=random_output task.seed=2"),
    *(f"optimizer={name}" for name in ("adamw", "sgd", "adagrad", "rmsprop", "nadam model=nanogpt")),
    *(f"scheduler={name}" for name in ("step", "warmup_cosine", "warmup_linear trainer.max_epochs=7")),
    *("model.optimizer.lr=3e-4", "model.optimizer.betas=[0.9,0.999] model.optimizer.weight_decay=0.01"),
    *("loss=cross_entropy_and_value", "model.loss.label_smoothing=0.1", "trainer.precision=bf16-mixed"),
    *("data.batch_size=64 model.net.dropout=0", "model=nanogpt model.gradient_clip=null model.net.num_layers=2"),
    *("experiment=fig3 scale=smoke", "scale=smoke model=nanogpt", "seed=1,1"),
]
TINY = "task.bits=4 trainer.max_epochs=2 trainer.accelerator=cpu seed=0-1"
TRAINED = ["", "model=nanogpt", "ablation=squeezed_encoder", "split=vs_v", "scheduler=warmup_cosine optimizer=adamw"]
HALF = "task.bits=4 trainer.max_epochs=8 trainer.accelerator=cpu seed=0-1 ablation=d_model_32"
ALGORITHMS = ("erd", "prefix_carry", "lookahead_carry", "remainder", "mixed", "graded_carry", "local_remainder")
CALIBRATED = [(name, seed) for seed in (2000, 2001, 2002) for name in ALGORITHMS]
CALIBRATED += [(f"{name}_decoy", 2000) for name in ALGORITHMS[:3]]
CALIBRATION = {"verdict": "verdict", "accuracy all": "accuracy"}
CARDS = ("transformer", "nanogpt")


def names(configurations: list[str]) -> list[str]:
    """The names that runs of these configurations have."""
    code = """import sys, shlex, arith_erd
for line in sys.stdin.read().split("\\n"):
    try: print(arith_erd.compose("train", [*shlex.split(line, posix=False), "runs_dir=none"]).name)
    except Exception: print("refused")"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, input="\n".join(configurations), text=True,
                          capture_output=True, check=True)  # fmt: skip
    return done.stdout.split()


def of_card(path: Path, network: str = "") -> Values:
    """What tells the rows of one card apart -> value; the verdict is a value too."""
    found = {}
    for row in table(path):
        if network and (row["network"], row["seed"]) != (network, "0"):  # in a table of several cards
            continue
        if row["test"] == "verdict":
            found["verdict"] = row["component"]
        parts = [row["test"], row["component"], row["site"], row["position"]]
        found[" ".join(part for part in parts if part)] = row["value"]
    return found


def program(*words: str | Path, cwd: Path = ROOT) -> str:
    """The output of a Python program of this checkout; on failure its last line is the error."""
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def by(path: Path, *key: str) -> Values:
    """Every cell of a table that is not empty, by ``key of the row, column``."""
    return {
        f"{' '.join(row[name] for name in key)}, {column}": cell
        for row in table(path) for column, cell in row.items() if column not in key and cell
    }  # fmt: skip


def of_weights(path: Path) -> str:
    """The hash of all tensors of a safetensors file, without its metadata."""
    data, digest = path.read_bytes(), hashlib.sha256()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    for name in sorted(header.keys() - {"__metadata__"}):
        first, last = header[name].pop("data_offsets")
        digest.update(f"{name} {header[name]}".encode() + data[start + first : start + last])
    return digest.hexdigest()


def of_run(run: Path) -> Values:
    """Hashes of the final weights of a run and of its metrics without ``seconds``."""
    rows = [{name: cell for name, cell in row.items() if name != "seconds"} for row in table(run / "metrics.csv")]
    found = {path.name: of_weights(path) for path in sorted(run.glob("weights/seed=*.safetensors"))}
    return found | {"metrics.csv": hashlib.sha256(json.dumps(rows).encode()).hexdigest()}


def trained(configuration: str, runs: Path) -> Values:
    program("train.py", *configuration.split(), f"runs_dir={runs}")
    run = runs / names([configuration])[0]
    return {f"{run.name} {name}": value for name, value in of_run(run).items()}


def record_runs(work: Path, _: argparse.Namespace) -> Values:
    found = {f"name of '{line}'": name for line, name in zip(NAMED, names(NAMED), strict=True)}
    for configuration in TRAINED:
        found |= trained(f"{TINY} {configuration}", work)
    return found


def probed(out: Path, *words: str) -> list[Path]:
    """The ``rows.csv`` of a probe, one for each run that it is asked about; not asked again if ``out`` is there."""
    if not out.is_dir():
        new = out.with_name(f"{out.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        program("probe.py", *words, f"out={new}")
        new.rename(out)
    return sorted(out.rglob("rows.csv"))


def leave_half(folder: Path) -> None:
    """Begin a run and kill it after its second epoch at the earliest, with a checkpoint on disk."""
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    run = new / names([HALF])[0]
    command = [sys.executable, "train.py", *HALF.split(), f"runs_dir={new}"]
    with subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL) as training:
        while training.poll() is None:
            time.sleep(0.02)
            if (run / "last.ckpt").is_file() and len({row["epoch"] for row in table(run / "metrics.csv")}) > 1:
                training.kill()
    if (run / "summary.json").is_file():
        raise SystemExit(f"{run}: finished before it could be killed")
    new.rename(folder)


def record_resumed(work: Path, options: argparse.Namespace) -> Values:
    half = options.folder / "half"
    if not half.is_dir() and options.origin:
        shutil.copytree(options.origin / "half", half)
    elif not half.is_dir():
        leave_half(half)
    if not (work / "resumed").is_dir():
        shutil.copytree(half, work / "resumed")
    resumed, name = trained(HALF, work / "resumed"), names([HALF])[0]
    begun, after = (table(folder / name / "metrics.csv")[0] for folder in (half, work / "resumed"))
    never_killed = trained(HALF, work / "whole")
    return resumed | {"first epoch kept": str(begun == after), "as if never killed": str(resumed == never_killed)}


def record_old(work: Path, options: argparse.Namespace) -> Values:
    report = work / "report"
    program("-m", "arith_erd.report", *(options.results / name for name in ("runs", "older")), "--out", report)
    found = by(report / "runs.csv", "run", "seed")
    groups: dict[str, str] = {}  # name without the seed -> seeds whose weights were kept
    for path in sorted(options.results.glob("runs/*/weights/seed=?.safetensors")):
        name = re.sub("-seed.*", "", path.parts[-3])
        groups[name] = groups.get(name, "") + path.stem[-1]
    for name, kept in groups.items():
        for path in probed(work / name, "probe=errors", f"run='{options.results}/runs/{name}-seed[{kept}]-*'"):
            rows = [[*row.values()] for row in table(path)]
            key = f"errors of {path.parent.name}" if len(kept) > 1 else f"errors of {name}, seed {kept}"
            found[key] = f"{len(rows)}, {hashlib.sha256(json.dumps(rows).encode()).hexdigest()}"
    return found


def record_claims(work: Path, options: argparse.Namespace) -> Values:
    work.mkdir(parents=True, exist_ok=True)
    for name in ("runs", "older"):  # the claims print the name of the folder in their commands
        if not (work / name).is_dir():
            shutil.copytree(options.results / name, work / name)
    program("-m", "arith_erd.report", "runs", "older", "--out", "report", cwd=work)
    return by(work / "report" / "claims.csv", "id")


def record_calibration(work: Path, _: argparse.Namespace) -> Values:
    found: Values = {}
    sizes = ["probe=mechanism", "probe.pairs=128", "probe.moved=128"]
    for name, seed in CALIBRATED:
        card = probed(work / f"{name}-{seed}", *sizes, f"reference={name}", f"seed={seed}")[0]
        for key, value in of_card(card).items():
            if key in CALIBRATION:
                found[f"{name} {seed}, {CALIBRATION[key]}"] = value
            elif key.startswith("verdict "):
                found[f"{name} {seed}, distance"] = value
            elif of_bit := re.fullmatch(r"signature (\w+) (\d)", key):
                found[f"{name} {seed}, {of_bit[1]}_{of_bit[2]}"] = value
    return found


def record_reference_probes(work: Path, _: argparse.Namespace) -> Values:
    work.mkdir(parents=True, exist_ok=True)
    program("benchmarks/reference_probes.py", work / "rows.csv", "--seed", "0")
    return by(work / "rows.csv", "network", "seed", "test", "stratum")


def record_cards(work: Path, options: argparse.Namespace) -> Values:
    asked = {name: f"run='{options.results}/runs/add-random-{name}-none-seed0-*'" for name in CARDS}
    asked |= {"authors": f"task=add checkpoint={options.authors}"} if options.authors else {}
    cards = {name: of_card(probed(work / name, "probe=mechanism", *words.split())[0]) for name, words in asked.items()}
    return {f"{name} 0, {key}": value for name, card in cards.items() for key, value in card.items()}


PARTS = {name.removeprefix("record_"): part for name, part in list(globals().items()) if name.startswith("record_")}
EXACT = ("runs", "resumed", "old", "claims")
COMMITTED = {  # tables of results/ and the columns that name a row
    "old": ("runs.csv", "run", "seed"),
    "claims": ("claims.csv", "id"),
    "calibration": ("mechanism-calibration-fresh.csv", "network", "seed"),
    "reference_probes": ("reference-probes.csv", "network", "seed", "test", "stratum"),
}


def committed(part: str) -> Values:
    """What ``results/`` holds of a part."""
    if part == "cards":
        cards = {name: of_card(RESULTS / "mechanism-cards.csv", name) for name in (*CARDS, "authors")}
        return {f"{name} 0, {key}": value for name, card in cards.items() for key, value in card.items()}
    return by(RESULTS / COMMITTED[part][0], *COMMITTED[part][1:]) if part in COMMITTED else {}


def load(folder: str, part: str) -> Values:
    """A recorded part, or the committed one; empty if there is none."""
    path = Path(folder) / f"{part}.json"
    found = committed(part) if folder == "committed" else json.loads(path.read_text()) if path.is_file() else {}
    for expression, old in RENAMED:
        found = {re.sub(expression, old, key): value for key, value in found.items()}
    return found


def far(first: str, second: str) -> float:
    """The distance of two numbers; of texts infinity, unless they are the same."""
    if first == second:
        return 0.0
    try:
        return abs(float(first) - float(second)) / max(1.0, abs(float(first)))
    except ValueError:
        return math.inf


def compare(first: str, second: str, parts: Iterable[str]) -> bool:
    """Print how each part differs; whether any does. Of a committed table only what both sides hold is compared."""
    differs = False
    for part in parts:
        one, two = load(first, part), load(second, part)
        if not one or not two:
            print(f"{part}: not in {second if one else first}")
            differs = differs or "committed" not in (first, second)
            continue
        apart = {key: far(one[key], two[key]) for key in one if key in two}
        wrong = {key: f"{one[key]} and {two[key]}" for key, x in apart.items() if x > (part not in EXACT) * TOLERANCE}
        alone = [*(one.keys() - two.keys()), *(two.keys() - one.keys())]
        if "committed" not in (first, second):
            wrong |= {key: f"only in {first if key in one else second}" for key in sorted(alone)}
            alone = []
        largest = max(apart.values(), default=math.inf)
        verdict = f"equal within rounding (max difference {largest:.2g})" if largest else "equal"
        if wrong or not apart:
            verdict, differs = f"{len(wrong)} differences", True
        print(f"{part}: {verdict}; {len(apart)} values compared" + (f", {len(alone)} on one side" if alone else ""))
        print("".join(f"  {key}: {text}\n" for key, text in [*wrong.items()][:SHOWN]), end="")
    return differs


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    record, compared = commands.add_parser("record"), commands.add_parser("compare")
    record.add_argument("folder", type=lambda text: Path(text).resolve())
    record.add_argument("--from", dest="origin", type=Path, help="a recorded folder with a half-trained run")
    record.add_argument("--results", type=lambda text: Path(text).resolve(), default=RESULTS, help="another results/")
    record.add_argument("--authors", type=lambda text: Path(text).resolve(), help="the authors' addition weights")
    compared.add_argument("first")
    compared.add_argument("second")
    for command in (record, compared):
        command.add_argument("--part", action="append", choices=PARTS, help="again for several; default: all")
    options = parser.parse_args()
    if options.command == "compare":
        raise SystemExit(compare(options.first, options.second, options.part or PARTS))
    for part in options.part or PARTS:
        begun = time.monotonic()
        found = PARTS[part](options.folder / "work" / part, options)
        (options.folder / f"{part}.json").write_text(json.dumps(found, indent=1) + "\n")
        print(f"{part}: {len(found)} values, {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
