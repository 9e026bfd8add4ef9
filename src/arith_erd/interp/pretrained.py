"""The trained networks behind `results/`: finished run directories that come with a checkout."""

from collections import defaultdict
from pathlib import Path

from ..config.job import Job
from ..config.read import read_run
from ..errors import UserError, bad_value
from ..runs import Run
from .subject import Subject, load_run

BOX = Path(__file__).parents[3] / "results" / "runs"


def load_pretrained(name: str, seed: int = 0, box: Path = BOX) -> Subject:
    """A trained network by its short name, such as ``add-transformer``, ``add-vs_v-nanogpt``.

    >>> import torch
    >>> from arith_erd.models.decoding import greedy
    >>> subject = load_pretrained("add-transformer")
    >>> prompt = torch.from_numpy(subject.task.examples([100], [27]).prompt)
    >>> subject.task.decode(greedy(subject.network, prompt, subject.task.width))
    array([127])

    The name has the task, the split unless it is random, the model, and the ablation unless there is none.

    Args:
        name: one of `pretrained`.
        seed: of the replica.
        box: the folder of run directories.

    Raises:
        UserError: if there is no such network, or not with this seed.
    """
    known = pretrained(box)
    if name not in known:
        raise bad_value("name", name, " or ".join(known) or f"a name, but {box} holds no finished run")
    if seed not in known[name]:
        raise bad_value("seed", seed, f"{', '.join(map(str, known[name]))} for {name}")
    return load_run(known[name][seed], seed)


def pretrained(box: Path = BOX) -> dict[str, dict[int, Path]]:
    """The trained networks that are there: short name -> seed -> run directory."""
    found: dict[str, dict[int, Path]] = defaultdict(dict)
    for path in sorted(box.glob("*/summary.json")):
        run = Run(path.parent)
        try:
            job = read_run(run)
        except UserError:
            continue
        kept = [seed for seed in job.seeds if run.weights(seed).is_file()]  # `report.publish` may have left some out
        found[short_name(job)] |= dict.fromkeys(kept, run.path)
    return {name: dict(sorted(seeds.items())) for name, seeds in sorted(found.items()) if seeds}


def short_name(job: Job) -> str:
    """``add-transformer``: what `load_pretrained` calls the networks of a job."""
    split, ablation = job.names["split"], job.ablation.name
    parts = [
        job.names["task"],
        "" if split == "random" else split,
        job.model.name,
        "" if ablation == "none" else ablation,
    ]
    return "-".join(part for part in parts if part)
