"""Findings about the recording itself: what it lacks, and how to record it."""
