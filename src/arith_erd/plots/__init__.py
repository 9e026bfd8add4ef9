"""Figures of probes, curves and tables, in one style."""
