"""A program like train.py whose jobs train nothing: they count their steps, and continue. It starts quickly."""

import os
import time

from arith_erd.config.job import Job
from arith_erd.launch.cli import entry_point
from arith_erd.system.files import locked

STEP = 0.2  # seconds


@entry_point("train")
def main(job: Job) -> None:
    steps = job.run.path / "steps"
    with locked(job.run.path):
        job.run.create(job.resolved)
        for _ in range(job.trainer.max_epochs - (len(steps.read_text()) if steps.exists() else 0)):
            with steps.open("a") as file:
                file.write(".")
            time.sleep(STEP)
        (job.run.path / "device").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        for seed in job.seeds:
            job.run.weights_file(seed).touch()
        job.run.finish({"seeds": [{"seed": seed} for seed in job.seeds]})


if __name__ == "__main__":
    main()
