"""Instruments for networks: activations, interventions, causal models, subspaces, erasure, loading, export."""
