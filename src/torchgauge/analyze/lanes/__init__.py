"""Recorded events as lanes of a drawing over time."""
