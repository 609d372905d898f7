"""Runtimes of ONNX files: a session as the callable of a target."""
