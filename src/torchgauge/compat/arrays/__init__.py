"""Models without torch: teaching frameworks on NumPy, estimators, plain callables."""
