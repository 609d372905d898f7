"""Totals to an OTLP endpoint over HTTP; needs the extra `otlp`."""

from __future__ import annotations

import functools
import os
from typing import Any
from urllib.parse import urlsplit

from torchgauge.errors import MeasurementError
from torchgauge.imports import required
from torchgauge.monitoring.delivery import Batch
from torchgauge.report.windows.otlp_metrics import otlp_metrics

TIMEOUT = 10.0  # seconds of one request, with its repetitions


class OtlpReceiver:
    """Sends what a process has recorded since it began: the next batch has what one lost.

    Raises MissingExtraError.
    """

    part = "otlp"
    backlog = 1

    def __init__(self, endpoint: str, *, gen_ai: bool = False) -> None:
        module = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
        library = "opentelemetry-exporter-otlp-proto-http"
        otlp = required(module, "otlp", "Sending to an OTLP endpoint", library)
        self._endpoint, self._gen_ai = endpoint, gen_ai
        make: Any = otlp.OTLPMetricExporter
        # One a process: two on a connection that was inherited would mix their answers.
        self._exporter_of = functools.cache(lambda _: make(endpoint=endpoint, timeout=TIMEOUT))

    def receive(self, batch: Batch) -> None:
        """Send the totals. Raises MeasurementError `otlp-failed`."""
        resource = {
            "service.name": batch.monitor,
            "service.instance.id": batch.process,
            "telemetry.sdk.name": "torchgauge",
        }
        metrics = otlp_metrics(batch.totals, resource, gen_ai=self._gen_ai)
        result = self._exporter_of(os.getpid()).export(metrics, timeout_millis=TIMEOUT * 1000)
        if result.name != "SUCCESS":
            parts = urlsplit(self._endpoint)  # a user, a password and a query are secrets
            raise MeasurementError(
                f"The OTLP endpoint {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path} "
                "did not take the metrics.",
                id="otlp-failed",
                cause="It cannot be reached, or refuses them; OpenTelemetry's log has the answer.",
            )
