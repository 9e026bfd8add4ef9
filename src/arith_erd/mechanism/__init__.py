"""Which algorithm does a network run: wrong prefixes, steering and patching, compared with networks written by hand."""
