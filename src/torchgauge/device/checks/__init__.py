"""Checks for what distorts timings: pure functions of readings; `every` lists them."""
