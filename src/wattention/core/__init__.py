"""Plain frozen data that every other room may use: errors, quantities, shapes, costs, specs, records, the catalog.

Nothing here imports torch, probes a device or touches a global.
"""
