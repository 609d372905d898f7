"""The example inputs of a call."""
