"""Gates of two builds that are both here, and their options."""
