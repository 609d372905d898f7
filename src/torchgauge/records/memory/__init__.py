"""Records of memory use."""
