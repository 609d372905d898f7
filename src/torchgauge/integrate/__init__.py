"""Where torchgauge meets programs that people already run: pytest."""
