"""Findings about where a loop's data come from."""
