"""Work and what bounds it: roofs, bounds, costs of recorded operators."""
