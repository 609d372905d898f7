"""Records of generation: the calls of a language model's `generate`, forward by forward."""
