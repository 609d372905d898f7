"""Records of latency."""
