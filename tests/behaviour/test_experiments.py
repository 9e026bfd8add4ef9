"""The files of ``conf/experiment/`` and ``paper/scripts/mini.sh``: the jobs that each one runs, and its comment."""

from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import hydra
import pytest
import torch
import yaml

from arith_erd.bundled import CONF
from arith_erd.config.compose import compose
from arith_erd.config.hydra_conf import expand_sweep, hydra_over_conf, resolve
from arith_erd.config.job import Job as TrainJob
from arith_erd.config.job import read_job
from arith_erd.report.claims_file import CLAIMS, load_paper
from arith_erd.report.collect import OUR_RUNS, all_options, unpublished_settings
from arith_erd.runs.identity import flat_settings
from arith_erd.tasks import POSITION_ENCODINGS
from tests.conftest import Cli

TASKS, SPLITS, ORDERS = ("add", "mul"), ("random", "vs_t", "vs_v"), ("reverse", "plain")
ABLATIONS = (
    *("none", "squeezed_encoder", "one_head", "d_model_32"),
    *("no_positional_encoding", "no_attention", "no_feed_forward"),
)
EPOCHS = {"add": 50, "mul": 250, "random_output": 1000}


class Job(NamedTuple):
    """The options in which experiments differ."""

    task: str
    split: str = "random"
    model: str = "transformer"
    ablation: str = "none"
    prompt_order: str = "reverse"
    completion_order: str = "reverse"
    max_epochs: int = 50
    stop_at: float | None = None


WANTED = {
    "fig1": [Job(task, max_epochs=EPOCHS[task]) for task in TASKS],
    "fig2": [Job("random_output", max_epochs=1000)],
    "fig3": [Job(task, split, max_epochs=EPOCHS[task]) for task, split in product(TASKS, SPLITS)],
    "table3": [Job(task, ablation=name, max_epochs=1000, stop_at=0.95) for name, task in product(ABLATIONS, TASKS)],
    "figC6": [
        Job(task, prompt_order=prompt, completion_order=completion, max_epochs={"add": 150, "mul": 1500}[task])
        for task, completion, prompt in product(TASKS, ORDERS, ORDERS)
    ],
    "figE7": [Job(task, model="nanogpt", max_epochs=EPOCHS[task]) for task in TASKS],
    "figE8": [Job(task, split, "nanogpt", max_epochs=EPOCHS[task]) for task, split in product(TASKS, SPLITS)],
}

BEYOND = {"length": [*POSITION_ENCODINGS], "positions": [name for name in POSITION_ENCODINGS if name != "abacus"]}
"""Experiments that compare position encodings, and which."""


@cache
def sweep(name: str) -> list[TrainJob]:
    """Every job of ``python train.py -m experiment=NAME``."""
    preset = yaml.safe_load((CONF / "experiment" / f"{name}.yaml").read_text())
    parameters = preset.get("hydra", {}).get("sweeper", {}).get("params", {})
    with hydra_over_conf():
        jobs = expand_sweep(parameters, [f"experiment={name}"])
        composed = [read_job(resolve(hydra.compose("train", job))) for job in jobs]
    assert compose("train", jobs[0]) == composed[0]  # the strict way is slow, so once
    return composed


def job_of(job: TrainJob) -> Job:
    config = job.resolved
    groups = (config[group]["name"] for group in ("task", "split", "model", "ablation"))
    orders = (config["task"].get(f"{what}_order", "reverse") for what in ("prompt", "completion"))
    return Job(*groups, *orders, *(config["trainer"][key] for key in ("max_epochs", "stop_at")))


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("name", WANTED)
def test_experiment_has_the_jobs_of_the_paper_each_with_a_run_directory_of_its_own(name: str) -> None:
    jobs = sweep(name)
    assert [job_of(job) for job in jobs] == WANTED[name]
    assert len({job.run.name for job in jobs}) == len(jobs)
    for job in jobs:
        assert job.seeds == (0, 1, 2, 3, 4)
        assert unpublished_settings(flat_settings(job.resolved), load_paper().setup) == []
        with torch.device("meta"):
            job.network()


@pytest.mark.parametrize("name", BEYOND)
def test_experiment_beyond_the_paper_compares_positions_and_counts_for_no_claim(name: str) -> None:
    jobs = sweep(name)
    assert sorted(job.resolved["model"]["net"]["positions"] for job in jobs) == sorted(BEYOND[name])
    assert len({job.run.name for job in jobs}) == len(jobs)
    for job in jobs:
        paper = unpublished_settings(flat_settings(job.resolved), load_paper().setup) == []
        assert paper == (name == "positions" and job.resolved["model"]["net"]["positions"] == "learned")
        with torch.device("meta"):
            job.network()


@pytest.mark.slow
def test_first_training_ends_with_a_network_that_answers_every_pair(cli: Cli, tmp_path: Path, root: Path) -> None:
    """This is what ``make train`` does without options."""
    assert "$(or $(ARGS),experiment=first)" in (root / "Makefile").read_text()
    result = cli("train.py", "experiment=first", f"runs_dir={tmp_path}", timeout=900)
    assert "train 100.00%, validation 100.00% of sequences" in result.stdout


@pytest.mark.parametrize("option", ["task.interleaved=true", "model.net.positions=rope", "task=add_scratchpad"])
def test_other_formats_and_positions_never_count_for_the_paper(option: str) -> None:
    for claims in (load_paper(), load_paper(CLAIMS.with_name("mini.yaml"))):
        job = compose("train", [option, *(["scale=mini"] if claims.setup["all"]["task.bits"] == 5 else [])])
        assert unpublished_settings(flat_settings(job.resolved), claims.setup) != []


@pytest.mark.slow
def test_miniature_trains_whatever_its_claims_and_figures_ask_for(root: Path) -> None:
    """It takes the settings of ``mini.yaml``, trains each seed for long enough, and trains nothing besides."""
    paper, lengths = load_paper(CLAIMS.with_name("mini.yaml")), {}
    script = (root / "paper" / "scripts" / "mini.sh").read_text()
    for line in script.partition("<<'END'\n")[2].partition("\nEND")[0].splitlines():
        job = compose("train", ["scale=mini", *line.split()])
        assert job.seeds == tuple(range(10))
        assert unpublished_settings(flat_settings(job.resolved), paper.setup) == []
        lengths[str(all_options(job_of(job)._asdict()))] = job.trainer.max_epochs
    wanted: dict[str, int] = {}
    for claim in (claim for claim in paper.claims if claim.measure.source == OUR_RUNS):
        needs = claim.measure.required_epochs
        for _, runs in claim.measure.weighted_runs:
            kind = str(all_options(runs))
            wanted[kind] = max(wanted.get(kind, 0), needs, runs.get("min_epochs", 0))
    for curves in (figure.curves for figure in paper.figures if figure.curves):
        for task, line in product(curves.epochs, curves.lines):
            wanted.setdefault(str(all_options({"task": task, **line.runs})), 1)
    assert set(lengths) == set(wanted)
    assert all(lengths[kind] >= epochs for kind, epochs in wanted.items())
