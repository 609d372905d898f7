"""Records of traces that were recorded elsewhere."""
