"""What a device can say of itself."""
