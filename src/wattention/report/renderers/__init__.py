"""Renderers, one format a file: each prints any document and knows nothing of what it is about."""
