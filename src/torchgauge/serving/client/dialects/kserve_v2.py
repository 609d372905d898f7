"""The Open Inference Protocol over HTTP (KServe v2, Triton): its bodies are the user's."""

from __future__ import annotations

from torchgauge.serving.client.dialect import Dialect

DIALECT = Dialect("kserve-v2")
