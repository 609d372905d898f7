"""The files of recorded traces: read side by side, and kept for the next time."""
