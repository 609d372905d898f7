"""Kineto traces: text to columns of events, chunk by chunk."""
