"""Instruments for networks: activations, distances, erasure, causal interventions, the verdict on the algorithm."""
