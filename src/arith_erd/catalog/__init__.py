"""Load networks and their provenance from runs, files and the Hub, save them, and score methods on them."""
