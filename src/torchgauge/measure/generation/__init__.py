"""Measure how language models generate: prefill, decode steps, caches."""
