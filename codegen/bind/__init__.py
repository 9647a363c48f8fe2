"""Graphs → bindings: names, layouts, plans, families, operators of PyTorch."""
