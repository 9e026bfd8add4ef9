"""The jobs that hydra-submitit-launcher has submitted to Slurm for a sweep."""

from pathlib import Path

from hydra.core.utils import JobReturn
from omegaconf import DictConfig


def job_folder(launcher: DictConfig) -> Path | None:
    """Where submitit makes a folder for each job of this command; None under any other launcher."""
    if not str(launcher.get("_target_")).endswith(".SlurmLauncher"):
        return None
    return Path(launcher.submitit_folder).parent


def submitted(folder: Path) -> list[str]:
    """The ids of the jobs, those of an array as ``17_0``, ``17_1``."""
    ids = sorted(path.name for path in folder.glob("[0-9]*"))
    return [job for job in ids if "_" in job] or ids  # an array has a folder of its own too


def wait_for_all(folder: Path) -> None:
    """Wait until every job has ended, in whatever way.

    The launcher waits for one after the other, and leaves at the first that was killed, while others go on.
    """
    from submitit import SlurmJob

    for job in submitted(folder):
        SlurmJob[None](folder / job, job).wait()


def error_of(folder: Path, number: int) -> Exception | None:
    """What job ``number`` of a sweep raised, from what it left for the launcher; None if it raised nothing."""
    from submitit import SlurmJob

    for path in folder.glob(f"*_{number}"):
        job = SlurmJob[JobReturn](path, path.name)
        if job.paths.result_pickle.exists():  # else it runs, or was killed
            try:
                _ = job.result().return_value
            except Exception as error:
                return error
    return None
