"""Monitors of models in production: what calls take, by windows of time, at a cost of 0.3 µs."""
