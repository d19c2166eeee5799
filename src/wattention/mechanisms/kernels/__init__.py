"""Kernels that more than one mechanism stands on."""
