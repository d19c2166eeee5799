"""Attention mechanisms, one file each; the folder is the registry (see ``base.py`` for what a file must export)."""
