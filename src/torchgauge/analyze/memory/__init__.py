"""From allocations to what was alive when, and what for."""
