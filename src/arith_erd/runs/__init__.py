"""Runs on disk: their directories, their identity, and tables of them."""
