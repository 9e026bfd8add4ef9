"""Files, locks, signals, requeueing, the machine: nothing here knows what is trained."""
