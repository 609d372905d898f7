"""Alerts and corrections over the runs of a history."""
