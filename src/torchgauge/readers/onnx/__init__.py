"""ONNX files, read in a process of their own."""
