"""Question a task or a trained network: ``python probe.py --help``."""

from arith_erd.probes.__main__ import main

if __name__ == "__main__":
    main()
