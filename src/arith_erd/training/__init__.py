"""Train a run, from its job to a finished directory."""
