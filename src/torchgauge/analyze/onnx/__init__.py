"""Graphs of ONNX files: layers, work and sizes of their nodes."""
