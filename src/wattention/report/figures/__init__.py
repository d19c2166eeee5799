"""The figures of a comparison, one a file: pure functions from values to a figure as data, or None without data."""
