"""Analysis of the cells of a sweep."""
