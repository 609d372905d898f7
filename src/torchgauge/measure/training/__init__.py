"""A training that a trainer runs, watched step by step."""
