"""From YAML to checked configurations, and from these to objects. Loads no torch."""
