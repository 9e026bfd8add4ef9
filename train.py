"""Train a pack of tiny Transformers on binary arithmetic: ``python train.py --help``."""

from arith_erd.__main__ import train

if __name__ == "__main__":
    train()
