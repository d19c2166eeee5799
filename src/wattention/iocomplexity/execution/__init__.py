"""One run of a schedule: counted, checked against float64, traced for a cache, lowered to a pebble game."""
