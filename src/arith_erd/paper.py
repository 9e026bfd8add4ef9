"""The folder ``paper/`` of a clone or a wheel as a package: ``arith_erd.paper.probes.ceilings`` is a file in it."""

from .bundled import PAPER

__path__ = [str(PAPER)]  # this makes the module a package
