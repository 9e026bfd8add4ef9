"""Train a pack of tiny Transformers on binary arithmetic: ``python train.py --help``."""

from arith_erd.launch.cli import entry_point
from arith_erd.runs import Config, Run
from arith_erd.runs.plan import packs
from arith_erd.system.files import require_writable


def fitting(config: Config) -> int:
    from arith_erd.training.train import fitting_replicas  # torch is loaded only for a configuration that was accepted

    return fitting_replicas(config)


@entry_point("train", runs_of=lambda config: [Run.of(pack) for pack in packs(config)])
def main(config: Config) -> None:
    for pack in packs(config, fitting):
        run = Run.of(pack)
        if run.finished:
            print(f"{run.path}: finished already, skipped")
            continue
        require_writable("runs_dir", config["runs_dir"])
        from arith_erd.training.train import train

        train(run, pack)


if __name__ == "__main__":
    main()
