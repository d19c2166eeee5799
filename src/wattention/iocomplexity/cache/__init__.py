"""Real caches: what an address trace costs when least-recently-used replacement, not the program, decides what stays."""
