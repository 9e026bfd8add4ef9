"""Train a pack of tiny Transformers on binary arithmetic: ``python train.py --help``."""

from arith_erd.cli import entry_point
from arith_erd.runs import Config, Run, require_writable


@entry_point("train", runs_of=lambda config: [Run.of(config)])
def main(config: Config) -> None:
    run = Run.of(config)
    if run.finished:
        print(f"{run.path}: finished already, skipped")
        return
    require_writable("runs_dir", config["runs_dir"])
    from arith_erd.training import train  # torch is loaded only for a configuration that was accepted

    train(run, config)


if __name__ == "__main__":
    main()
