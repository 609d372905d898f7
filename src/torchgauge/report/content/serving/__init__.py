"""Load on a server and its capacity, in words and tables."""
