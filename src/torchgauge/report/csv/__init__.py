"""Records as rows of CSV."""
