"""Memory snapshots: a pickle of plain values to columns."""
