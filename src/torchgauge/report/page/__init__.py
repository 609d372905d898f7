"""The report page: the data that its script draws."""
