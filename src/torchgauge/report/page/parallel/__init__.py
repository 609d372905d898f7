"""The page of one rank of a job on many devices."""
