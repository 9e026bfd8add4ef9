"""Drawing: one style, and the figures of probes, curves and tables."""

import contextlib
from pathlib import Path

# When it is imported, matplotlib reads a file matplotlibrc of the current folder, whoever has put it there; a damaged
# one would end the program.
with contextlib.suppress(OSError), contextlib.chdir(Path(__file__).parent):
    import matplotlib as matplotlib
