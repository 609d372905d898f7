"""Findings about generation: where the time and the memory of a language model's calls go."""
