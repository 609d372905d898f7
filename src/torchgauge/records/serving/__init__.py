"""Records of serving: requests under load, and the capacity that they show."""
