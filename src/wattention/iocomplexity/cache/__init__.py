"""Real caches: what an address trace costs when LRU replacement, not the program, decides what stays."""
