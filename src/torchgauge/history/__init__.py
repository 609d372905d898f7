"""Runs over time in a SQL database, and the trends of their figures."""
