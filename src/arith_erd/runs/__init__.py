"""Runs on disk: their directories, what identifies them, and tables of them."""
