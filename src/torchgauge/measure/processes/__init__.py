"""Measurements in other processes."""
