"""What one rank of a job holds, whether it fits a device, and how fast a step can be at most."""
