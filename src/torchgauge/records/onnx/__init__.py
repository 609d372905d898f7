"""Records of ONNX files."""
