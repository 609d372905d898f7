"""Python's own time by line of the user's source."""
