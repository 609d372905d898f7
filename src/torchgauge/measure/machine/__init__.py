"""The machine: what makes its measurements unreliable, and its use while a model runs."""
