"""Recordings by torch.profiler, and the threads and modules that they cover."""
