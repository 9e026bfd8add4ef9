"""A page in which networks compute, and can be intervened on, without Python and without a network connection."""
