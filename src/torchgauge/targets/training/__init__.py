"""Training steps: loss, optimizer and metric."""
