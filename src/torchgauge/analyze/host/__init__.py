"""What the host does while a device waits for it: by cause, and by thread."""
