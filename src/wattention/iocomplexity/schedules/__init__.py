"""Schedules, one algorithm a file, written once against the memory machine; the folder is the registry."""
