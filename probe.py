"""Question a task or a trained network: ``python probe.py --help``."""

from arith_erd.__main__ import probe

if __name__ == "__main__":
    probe()
