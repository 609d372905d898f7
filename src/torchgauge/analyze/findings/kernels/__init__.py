"""Findings about kernels and copies: precision, shape, pinned memory."""
