"""Command-line programs, sweeps, clusters."""
