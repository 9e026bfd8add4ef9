"""Drawing: one style, and the figures of probes, curves and tables."""
