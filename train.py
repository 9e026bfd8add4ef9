"""Train a pack of tiny Transformers on binary arithmetic: ``python train.py --help``."""

from arith_erd.cli import entry_point
from arith_erd.files import require_writable
from arith_erd.packs import packs
from arith_erd.runs import Config, Run


def fitting(config: Config) -> int:
    from arith_erd.training import fitting_replicas  # torch is loaded only for a configuration that was accepted

    return fitting_replicas(config)


@entry_point("train", runs_of=lambda config: [Run.of(pack) for pack in packs(config)])
def main(config: Config) -> None:
    for pack in packs(config, fitting):
        run = Run.of(pack)
        if run.finished:
            print(f"{run.path}: finished already, skipped")
            continue
        require_writable("runs_dir", config["runs_dir"])
        from arith_erd.training import train

        train(run, pack)


if __name__ == "__main__":
    main()
