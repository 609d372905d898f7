"""The reference server: a body that it knows, and an answer whose head names batch and service.

Any server may name them, and every API reads them: `Server-Timing: batch;desc="8",
service;dur=12.5` (W3C Server Timing; durations are milliseconds).
"""

from __future__ import annotations

from torchgauge.serving.client.dialect import Dialect

DIALECT = Dialect("torchgauge", path="/torchgauge")
