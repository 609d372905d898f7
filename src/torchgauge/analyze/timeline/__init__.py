"""From spans to the tree of a step."""
