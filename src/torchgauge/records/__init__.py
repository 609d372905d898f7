"""Every result type, and the JSON codec; nothing here measures, formats or needs torch."""
