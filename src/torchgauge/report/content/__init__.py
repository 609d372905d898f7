"""What a report says, before a format decides how it looks."""
