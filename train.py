"""Train a pack of tiny Transformers on binary arithmetic: ``python train.py --help``."""

from arith_erd.training.__main__ import main

if __name__ == "__main__":
    main()
