"""What a call allocates."""
