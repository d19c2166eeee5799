"""Data movement of attention: memory machine, schedules, bounds, planner, pebble game, cache simulator."""
