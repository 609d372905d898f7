"""The content of a report on generation."""
