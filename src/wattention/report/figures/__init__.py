"""Figures, one a file: pure functions from values to a figure as data, or to None without data."""
