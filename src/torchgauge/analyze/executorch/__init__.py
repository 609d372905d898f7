"""ExecuTorch programs: their graph with its work, and the times of their instructions."""
