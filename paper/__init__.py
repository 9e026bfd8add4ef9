"""The paper's claims, its studies and their results. Run a module from the clone: ``python -m paper.studies.zoo``."""
