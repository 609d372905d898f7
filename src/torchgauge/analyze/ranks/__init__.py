"""The ranks of one job compared: who comes late, by how much, and what differs there."""
