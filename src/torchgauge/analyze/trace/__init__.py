"""Analysis of a recorded trace: of one rank, and of all ranks of a job."""
