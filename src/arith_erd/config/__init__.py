"""Read YAML, check the configuration, and build its objects. Loads no torch."""
