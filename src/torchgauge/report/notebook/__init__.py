"""Records in a notebook: HTML with small drawings."""
