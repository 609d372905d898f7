"""Analysis of recorded memory snapshots."""
