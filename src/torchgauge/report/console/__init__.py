"""Records for a terminal."""
