"""Pure functions over records: statistics, comparisons, crossovers. No torch, no meters."""
