"""Any HTTP endpoint: a body of the user's, and an answer of which only the status is read."""

from __future__ import annotations

from torchgauge.serving.client.dialect import Dialect

DIALECT = Dialect("json")
