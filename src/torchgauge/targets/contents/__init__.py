"""What objects hold: how it is found, noted and put back."""
