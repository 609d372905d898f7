"""Grids of settings: which cells there are, and how each is measured in a process of its own."""
