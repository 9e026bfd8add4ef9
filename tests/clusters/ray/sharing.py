"""train.py, whose jobs wait until all four have a GPU, and write down which before they train."""

import os
import time

from arith_erd.config.job import Job
from arith_erd.launch.cli import entry_point

JOBS = 4
PATIENCE = 600  # seconds, on a busy machine


@entry_point("train")
def main(job: Job) -> None:
    devices = job.runs_dir.with_name("devices")
    devices.mkdir(exist_ok=True)
    (devices / job.run.name).write_text(os.environ["CUDA_VISIBLE_DEVICES"])
    deadline = time.monotonic() + PATIENCE
    while len(list(devices.iterdir())) < JOBS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {len(list(devices.iterdir()))} of {JOBS} jobs run at a time")
        time.sleep(0.1)
    from arith_erd.training.train import train

    train(job)


if __name__ == "__main__":
    main()
