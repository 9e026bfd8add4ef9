"""train.py, whose jobs wait until all four have a GPU, and write down which before they train."""

import os
import time
from pathlib import Path

from arith_erd.launch.cli import entry_point
from arith_erd.runs import Config, Run

JOBS = 4
PATIENCE = 600  # seconds, on a busy machine


@entry_point("train", runs_of=lambda config: [Run.of(config)])
def main(config: Config) -> None:
    run = Run.of(config)
    devices = Path(config["runs_dir"]).with_name("devices")
    devices.mkdir(exist_ok=True)
    (devices / run.name).write_text(os.environ["CUDA_VISIBLE_DEVICES"])
    deadline = time.monotonic() + PATIENCE
    while len(list(devices.iterdir())) < JOBS:
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {len(list(devices.iterdir()))} of {JOBS} jobs run at a time")
        time.sleep(0.1)
    from arith_erd.training.train import train

    train(run, config)


if __name__ == "__main__":
    main()
