"""Formulas by family; every module here is imported by the registry."""
