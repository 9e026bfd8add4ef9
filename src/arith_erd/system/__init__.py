"""Files, locks, signals, requeueing and the machine, without any knowledge of training."""
