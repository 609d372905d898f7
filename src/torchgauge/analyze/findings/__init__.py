"""Findings: what costs time or memory in a profile, a loop or a trace, a file each."""
