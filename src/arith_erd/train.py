"""The program ``python -m arith_erd.train``, which is ``train.py`` from any folder: see its ``--help``.

Only a program: as a module it would hide the function `arith_erd.train`.
"""

if __name__ != "__main__":
    raise ImportError("arith_erd.train is a program (python -m arith_erd.train), and a function of arith_erd")

from .training.__main__ import main

main()
