"""What this machine does by itself: operators, launches, levels of memory and joules, timed for its profile."""
