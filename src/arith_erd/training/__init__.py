"""One run, from a job to a finished directory."""
