"""What happens in a step, layer by layer."""
