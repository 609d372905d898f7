"""What requests under load show, and how many workers a load needs: pure functions."""
