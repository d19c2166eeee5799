"""Hardware as data: one TOML profile per machine, every number with its unit and source."""
