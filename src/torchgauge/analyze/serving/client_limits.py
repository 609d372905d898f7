"""Whether the client kept up with its schedule."""

from __future__ import annotations

import msgspec

from torchgauge import units
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.serving.distribution import Distribution
from torchgauge.records.serving.level import ClientLoad

LEAST_LATENESS = 1e-3
SHARE = 0.05


def with_limit(client: ClientLoad, latency: Distribution | None) -> ClientLoad:
    """Mark a client whose lateness p99 is above 1 ms and above 5 % of the median latency."""
    median = None if latency is None else latency.percentile(0.5)
    allowed = max(LEAST_LATENESS, SHARE * median.value if median is not None else 0.0)
    limited = client.lateness_p99 is not None and client.lateness_p99 > allowed
    return msgspec.structs.replace(client, limited=limited)


def client_warnings(client: ClientLoad) -> tuple[MeasurementWarning, ...]:
    """Return the warning of a level at which the client was too slow: it measured itself."""
    if not client.limited:
        return ()
    waiting = ""
    if client.waiting is not None:
        waiting = f", waiting for a core {units.significant(client.waiting * 100)} % of the time"
    return (
        MeasurementWarning(
            id="client-limited",
            message=f"The client sent requests late: p99 {units.time(client.lateness_p99)}"
            f"{waiting}. The latencies are the client's as much as the server's.",
            probe="serving",
            cause="It had too little CPU for this rate, or shares its cores with the server.",
            remedy="Use another machine or further client processes, or offer a lower rate.",
        ),
    )
