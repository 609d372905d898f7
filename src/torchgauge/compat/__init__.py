"""Faces that others' scripts already call, thin over `api`: ModelProfiler, Profiler."""
