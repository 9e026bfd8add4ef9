"""train.py with jobs that wait until all four have a GPU, and note their GPU and worker before they train."""

import os
import time

from arith_erd.config.job import Job
from arith_erd.launch.cli import entry_point

JOBS = 4
PATIENCE = 600  # seconds, on a busy machine


@entry_point("train")
def main(job: Job) -> None:
    devices, workers = (job.runs_dir.with_name(name) for name in ("devices", "workers"))
    for folder, text in ((workers, str(os.getppid())), (devices, os.environ["CUDA_VISIBLE_DEVICES"])):
        folder.mkdir(exist_ok=True)
        (folder / job.run.name).write_text(text)
    deadline = time.monotonic() + PATIENCE
    while len(list(devices.iterdir())) < JOBS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {len(list(devices.iterdir()))} of {JOBS} jobs run at a time")
        time.sleep(0.1)
    from arith_erd.training.train import train

    train(job)


if __name__ == "__main__":
    main()
