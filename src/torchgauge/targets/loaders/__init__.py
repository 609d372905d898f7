"""One loader for each kind of target."""
