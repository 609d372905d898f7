"""A local page over histories and monitors that run: a server that only reads, and what it says."""
