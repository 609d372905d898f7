"""Peak compute and bandwidth of a machine: measured, stored, or from a datasheet."""
