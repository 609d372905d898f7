"""Readers of recordings: bytes in, columns of events out; nothing here needs torch."""
