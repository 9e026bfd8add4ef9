"""Networks and what is known of them: loaded from runs, files and the Hub, saved, and used to score methods."""
