"""Files of ExecuTorch: programs, recordings of them, and records of how they were lowered."""
