"""The reference batching server: a target behind HTTP, in processes of its own."""
