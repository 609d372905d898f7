"""How big a PyTorch model is, how long it takes, how much memory it needs, and where that goes."""
