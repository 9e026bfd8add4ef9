"""The folder ``paper/`` of a clone or a wheel as a package: ``arith_erd.paper.probes.ceilings`` is a file in it.

All code outside the folder imports from it by this name, and commands use it: ``python -m
arith_erd.paper.studies.zoo``. So no module is loaded under two names, and the dashboard, which is in the wheel, runs in
any folder (with ``-P``, so that no file there is imported). The preregistrations stay as they were, with the former
``python -m paper.``, which works in the clone. Imports within are relative, except in the two files that claims files
name, ``measures.py`` and ``figures.py``: these are loaded by their path.
"""

from .bundled import PAPER

__path__ = [str(PAPER)]  # this makes the module a package
