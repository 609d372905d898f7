"""Findings about load: what a server runs out of, what requests wait for, and what misleads."""
