"""Capacity by simulation: what requests would wait, and how many workers a rate needs."""
