"""What to run next: complete commands about the same target."""
