"""One run, from a configuration to a finished directory."""
