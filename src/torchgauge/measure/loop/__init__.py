"""The user's own loop, watched from outside."""
