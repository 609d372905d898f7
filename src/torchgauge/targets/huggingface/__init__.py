"""Transformers models by name or folder, without the network."""
