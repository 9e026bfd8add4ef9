"""Drawing: one style, and the pictures that more than one part of the package draws."""
