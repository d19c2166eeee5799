"""A grid of runs in randomised blocks; launchers; results on disk."""
