"""Requests that wait for a connection of their own."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import Rule
from torchgauge.analyze.findings.serving.in_flight_limit import long_waits
from torchgauge.records.finding import Finding


def _find(evidence: Evidence) -> Iterator[Finding]:
    for wait in long_waits(evidence):
        client = wait.level.client
        if not wait.slots and client is not None and client.connections:
            yield Finding(
                id="connection-setup",
                severity="info",
                title=f"Requests wait until a connection is open at {wait.name}",
                evidence=f"{wait.amounts} {client.connections:,} connections were opened for "
                f"{len(wait.level.requests):,} requests.",
                remedy="Keep-alive in the server, if it closes connections. The client uses none "
                "that was idle for 1 s: at low rates most requests open one.",
            )
            return


RULE = Rule("connection-setup", _find)
