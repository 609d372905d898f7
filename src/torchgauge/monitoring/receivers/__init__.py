"""Where the windows of a monitor go."""
