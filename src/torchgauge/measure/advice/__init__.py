"""What a candidate of advise needs to know of a model."""
