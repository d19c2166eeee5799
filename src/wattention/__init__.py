"""Which attention mechanism to train with: its seconds, bytes and joules, why, and how far from the limit."""

__version__ = "0.1.0"
