"""Pure functions of numbers and records: statistics and attribution."""
