"""The content of reports on one rank of a job on many devices."""
