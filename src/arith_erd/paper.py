"""The folder ``paper/`` of a clone or a wheel as a package: ``arith_erd.paper.probes.ceilings`` is a file in it.

All code outside the folder imports from it by this name. Imports within are relative, except in the two files that
claims files name, ``measures.py`` and ``figures.py``: these are loaded by their path.
"""

from .bundled import PAPER

__path__ = [str(PAPER)]  # this makes the module a package
