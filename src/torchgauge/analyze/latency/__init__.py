"""From samples to the figures of a latency."""
