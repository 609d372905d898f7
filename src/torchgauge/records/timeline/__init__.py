"""Records of timelines: the tree, and a loop."""
