"""Which algorithm does a network run? Its responses to wrong prefixes and to steering, the verdict, certificates."""
