"""Tables about one subject, which several kinds of records have."""
