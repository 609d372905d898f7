"""Counting one rank of a job on many devices: fake process groups and fake tensors."""
