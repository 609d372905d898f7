"""Findings about devices that wait."""
