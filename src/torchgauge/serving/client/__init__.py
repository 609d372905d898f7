"""The load client: requests sent at their scheduled moments, and what became of each."""
