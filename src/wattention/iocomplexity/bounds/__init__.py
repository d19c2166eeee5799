"""Lower bounds on data movement, one theorem a file; the folder is the registry."""
