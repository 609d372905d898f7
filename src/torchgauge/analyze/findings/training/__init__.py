"""Findings about how a model is trained: its optimizer."""
