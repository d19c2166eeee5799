"""Answers about a problem: schedules ranked, bounds beside them, crossings, curves, levels of a device, claims."""
