"""Arrays of NumPy: what they are part of, and the work that is done with them."""
