"""The files of ``conf/experiment/``: the jobs that each one runs, and the comment that describes it."""

import re
from functools import cache
from itertools import product
from typing import NamedTuple

import hydra
import pytest
import torch
import yaml
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser

from arith_erd.config.compose import CONF, compose, resolve
from arith_erd.config.job import Job as TrainJob
from arith_erd.config.read import read_job
from arith_erd.report.collect import departures
from arith_erd.report.paper import load_paper
from arith_erd.runs import settings

from .pages import ROOT

EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
TASKS, SPLITS, ORDERS = ("add", "mul"), ("random", "vs_t", "vs_v"), ("reverse", "plain")
ABLATIONS = (
    *("none", "squeezed_encoder", "one_head", "d_model_32"),
    *("no_positional_encoding", "no_attention", "no_feed_forward"),
)
EPOCHS = {"add": 50, "mul": 250, "random_output": 1000}


class Job(NamedTuple):
    """What the experiments differ in."""

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


@cache
def sweep(name: str, *scale: str) -> list[TrainJob]:
    """Every job of ``python train.py -m experiment=NAME``."""
    preset = yaml.safe_load((CONF / "experiment" / f"{name}.yaml").read_text())
    parameters = preset.get("hydra", {}).get("sweeper", {}).get("params", {})
    return jobs_of(f"experiment={name}", *scale, *(f"{key}={values}" for key, values in parameters.items()))


def jobs_of(*arguments: str) -> list[TrainJob]:
    """Every job of ``python train.py -m ARGUMENTS``, as Hydra's sweeper makes them."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
        overrides = parser.parse_overrides(list(arguments))
        (jobs,) = BasicSweeper.split_arguments(overrides, max_batch_size=None)
        composed = [read_job(resolve(hydra.compose("train", job))) for job in jobs]
    assert compose("train", jobs[0]) == composed[0]  # the strict way is slow, so once
    return composed


def job_of(job: TrainJob) -> Job:
    config = job.resolved
    groups = (config[group]["name"] for group in ("task", "split", "model", "ablation"))
    orders = (config["task"].get(f"{what}_order", "reverse") for what in ("prompt", "completion"))
    return Job(*groups, *orders, *(config["trainer"][key] for key in ("max_epochs", "stop_at")))


def test_every_experiment_has_its_expected_jobs_here() -> None:
    assert set(WANTED) == set(EXPERIMENTS)


@pytest.mark.parametrize("name", WANTED)
def test_experiment_has_the_jobs_of_the_paper(name: str) -> None:
    jobs = sweep(name)
    assert [job_of(job) for job in jobs] == WANTED[name]
    for job in jobs:
        assert job.seeds == (0, 1, 2, 3, 4)
        assert departures(settings(job.resolved), load_paper().setup) == []  # or the report would leave it out


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_job_builds_and_has_its_own_run_directory(name: str) -> None:
    jobs = sweep(name)
    assert len({job.run.name for job in jobs}) == len(jobs)
    for job in jobs:
        with torch.device("meta"):
            job.network()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_smoke_scale_changes_only_sizes_in_every_experiment(name: str) -> None:
    full, tiny = sweep(name), sweep(name, "scale=smoke")
    assert [job_of(job) for job in tiny] == [job_of(job)._replace(max_epochs=2) for job in full]
    for job in tiny:
        assert job.seeds == (0, 1, 2)  # as few as have an interval
        found = departures(settings(job.resolved), load_paper().setup)
        assert "task.bits=4" in found  # none passes for a run of the paper


def test_scale_is_no_part_of_the_configuration() -> None:
    """So the default run keeps its name."""
    assert compose("train").run.name == "add-random-transformer-none-seed0-a7f42b33"
    assert "scale" not in compose("train", ["scale=smoke"]).resolved


SECONDS = {"transformer": {"add": 10, "mul": 12, "random_output": 10}, "nanogpt": {"add": 8, "mul": 11}}
"""An epoch of one replica on one CPU core, another run beside it, as medians of runs with d1aa1ca and 5f5b4b3."""


def hours(jobs: list[TrainJob]) -> float:
    told = ((job_of(job), len(job.seeds)) for job in jobs)
    return sum(SECONDS[job.model][job.task] * job.max_epochs * seeds for job, seeds in told) / 3600


@pytest.mark.parametrize("name", sorted({*EXPERIMENTS} - {"table3"}))
def test_cost_of_an_experiment_follows_from_its_epochs(name: str) -> None:
    assert f"{hours(sweep(name)):.0f} hours on one CPU core" in comment_of(name)


def test_hours_in_the_readme_follow_from_epochs() -> None:
    told = re.findall(r"^python train\.py (?:-m )?(.*?) +#.*: (\d+) h$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(told) == 3
    for arguments, number in told:
        assert number == f"{hours(jobs_of(*arguments.split())):.0f}", arguments


def comment_of(name: str) -> str:
    lines = (CONF / "experiment" / f"{name}.yaml").read_text().splitlines()
    return " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_file_states_command_cost_and_expectation(name: str) -> None:
    comment = comment_of(name)
    assert f"python train.py -m experiment={name}" in comment
    assert "Cost, " in comment
    assert "To expect" in comment
