"""Drawing: one style, and the figures of probes, curves and tables."""

import contextlib

# matplotlib reads matplotlibrc from the current folder when it is imported. A stranger's or a damaged file there could
# end the program, so it is imported from the root folder.
with contextlib.suppress(OSError), contextlib.chdir("/"):
    import matplotlib as matplotlib
