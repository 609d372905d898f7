"""A record in, text out: one format per file, each with one `render`; nothing is measured here."""
