"""Devices: timing, hardware counters, settings and the state of the machine."""
