"""Records of one rank of a job on many devices, counted without them."""
