"""The rows of `benchmarks/gpu.py`, one subject per file."""
