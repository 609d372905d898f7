"""Headline figures of records by part: the type of a figure, and those of long parts."""
