"""Records of work and its bounds."""
