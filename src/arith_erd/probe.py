"""The program ``python -m arith_erd.probe``, which is ``probe.py`` from any folder: see its ``--help``."""

from .probes.__main__ import main

if __name__ == "__main__":
    main()
