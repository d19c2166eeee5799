"""The only place that both runs a model and measures it: conformance gate, phases, one cell end to end."""
