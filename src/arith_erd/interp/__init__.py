"""Tools to analyse networks: activations, interventions, causal models, subspaces, erasure."""
