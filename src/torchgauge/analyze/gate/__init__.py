"""Whether a record got worse than tolerances and limits allow."""
