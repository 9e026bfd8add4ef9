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
    """The ids of the jobs in the order of the sweep, those of an array as ``17_0``, ``17_1``."""
    ids = [path.name for path in folder.glob("[0-9]*")]
    ids = [job for job in ids if "_" in job] or ids  # an array has a folder of its own too
    return sorted(ids, key=lambda job: [int(part) for part in job.split("_")])


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
    from submitit.core.utils import FailedJobError

    ids = submitted(folder)
    if number >= len(ids):
        return None
    job = SlurmJob[JobReturn](folder / ids[number], ids[number])
    if job.paths.result_pickle.exists():  # else it runs, or was killed
        try:
            _ = job.result().return_value
        except FailedJobError as error:  # raised before Hydra ran the job: a traceback between two lines of dashes
            trace = str(error).split("-" * 22)[1:2] or [str(error)]
            return RuntimeError(trace[0].strip().splitlines()[-1])
        except Exception as error:
            return error
    return None
