"""Findings about layers and operators: which take most, and which far more than their work."""
