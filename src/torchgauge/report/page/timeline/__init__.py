"""The timeline of a page."""
