"""What a cell measures while it runs: its phases in windows, their energy, their power over time, recall."""
