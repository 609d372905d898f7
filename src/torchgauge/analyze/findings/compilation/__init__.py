"""Findings about code that is made while a program runs."""
