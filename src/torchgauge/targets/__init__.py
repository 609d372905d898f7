"""What can be profiled, how it is loaded, and how it is left as it came."""
