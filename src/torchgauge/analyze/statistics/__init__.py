"""Statistics independent of models: one estimator per file."""
