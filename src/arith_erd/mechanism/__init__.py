"""Which algorithm does a network run? Its responses to wrong prefixes and steering; controls of alignment search."""
