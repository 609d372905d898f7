"""Findings about the host: synchronisations and calls that take far longer than usual."""
