"""The folder of graph families: one file a family, built from a spec such as ``attention:tokens=2,dim=2``."""
