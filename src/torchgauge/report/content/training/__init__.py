"""The content of reports on trainings."""
