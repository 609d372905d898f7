"""Improvements that are tried: one candidate per file, and the experiment that judges them."""
