"""The two-level memory machine: slow arrays, the ledger, tiles, streamed products; it knows no schedule."""
