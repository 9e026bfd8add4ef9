"""A door to the folder ``paper/``, in a clone or a wheel: ``arith_erd.paper.probes.ceilings`` is a file of it."""

from .bundled import PAPER

__path__ = [str(PAPER)]  # which makes this module a package
