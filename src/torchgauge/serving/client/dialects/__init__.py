"""The APIs that the client speaks, one per file."""
