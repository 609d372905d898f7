"""Analysis of the trials of candidates."""
