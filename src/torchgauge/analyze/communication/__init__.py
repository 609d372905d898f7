"""Communication between devices in a recorded trace: collectives, their kernels and messages."""
