"""Probes that only the paper asks: of its tables, its figures and what was found. Configurations name the classes."""
