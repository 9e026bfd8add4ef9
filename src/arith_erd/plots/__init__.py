"""Drawing: one style, and the figures of probes, curves and tables."""

import contextlib

# When it is imported, matplotlib reads a file matplotlibrc of the current folder, whoever has put it there; a damaged
# one would end the program. So it is imported where only the administrator can put one.
with contextlib.suppress(OSError), contextlib.chdir("/"):
    import matplotlib as matplotlib
