"""Which algorithm does a network run? Its responses to wrong prefixes and steering, against hand-written networks."""
