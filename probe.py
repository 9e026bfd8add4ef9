"""Question a task or a trained network: ``python probe.py --help``."""

from arith_erd.launch.cli import entry_point
from arith_erd.runs import Config


@entry_point("probe")
def main(config: Config) -> None:
    from arith_erd.probes.ask import probe  # slow imports only for a configuration that was accepted

    probe(config)


if __name__ == "__main__":
    main()
