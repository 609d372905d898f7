"""How long a call takes: the loop that times it, and its processes."""
