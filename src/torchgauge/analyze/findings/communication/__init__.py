"""Findings about communication between devices, and about ranks."""
