"""Python's garbage collector runs in the loop, and stops all threads meanwhile."""

from __future__ import annotations

from torchgauge.analyze.findings.host.delay import delay_rule

RULE = delay_rule(
    "garbage-collection",
    "garbage collection",
    "garbage collection",
    remedy="Call no gc.collect() in the step. gc.freeze() after set-up leaves out what lives "
    "on; or gc.disable(), and gc.collect() every some hundred steps.",
    source="https://docs.python.org/3/library/gc.html#gc.freeze",
)
