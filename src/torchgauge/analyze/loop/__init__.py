"""What a loop's steps come to: shares of a step with their intervals, and the verdict."""
