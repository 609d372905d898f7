"""Traces of JAX and Proton, in the terms of Kineto."""
