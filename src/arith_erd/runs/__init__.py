"""What lies on disk: run directories, their names, their rows, and which packs a list of seeds becomes."""

from .directory import METRICS, Config, Row, Run, epochs_to, identity, require_name, run_name

__all__ = ["METRICS", "Config", "Row", "Run", "epochs_to", "identity", "require_name", "run_name"]
