"""Measurements behind the pages of ``paper/found``: each module makes the table that it names."""
