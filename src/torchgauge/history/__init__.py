"""Runs over time in a SQL database, and the trends of their figures."""

from __future__ import annotations

import importlib.util

from torchgauge.errors import missing_extra

if importlib.util.find_spec("sqlalchemy") is None:
    raise missing_extra("SQLAlchemy", "history", "The history")
