"""Builds of a target: their source, home and git revision, for a fresh process."""
