"""What monitors record: distributions of values by window of time."""
