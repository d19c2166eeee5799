"""GPT-2 with a slot for attention, and generation with a cache."""
