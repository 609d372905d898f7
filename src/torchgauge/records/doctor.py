"""What `torchgauge doctor` found: the checks made, those not possible, and the noise floor."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from torchgauge.records import rendering
from torchgauge.records.environment import Environment
from torchgauge.records.finding import Finding
from torchgauge.records.record import How, Record

SCHEMA = "torchgauge.diagnosis/1"

Status = Literal["clear", "found", "unknown"]


class Check(Record, frozen=True, kw_only=True):
    """One thing looked at: `observed` says what is there, `unknown` what could not be read and why.

    `status` is "found" with any finding, else "unknown" where anything could not be read; "clear"
    is said of what was seen whole.
    """

    id: str
    title: str
    status: Status
    observed: str = ""
    unknown: str = ""
    findings: tuple[Finding, ...] = ()

    @staticmethod
    def from_findings(
        id: str,
        title: str,
        observed: str = "",
        findings: tuple[Finding, ...] = (),
        unknown: str = "",
    ) -> Check:
        """Return the check with the status that follows."""
        status: Status = "found" if findings else "unknown" if unknown else "clear"
        return Check(
            id=id, title=title, status=status, observed=observed, unknown=unknown, findings=findings
        )


class NoiseRun(Record, frozen=True, kw_only=True):
    """One A/A run: the same work on both sides, in fresh processes.

    `differences`: d = ln(median B / median A) of each ABBA block. `medians`: seconds, four to a
    block in the order A, B, B, A. `other`: cores' worth of time that other processes took
    meanwhile. `findings`: ids of what was warned of when it began. `duration`: seconds of the run.
    """

    created: str
    workload: str
    torch: str
    threads: int
    differences: tuple[float, ...]
    medians: tuple[float, ...]
    other: float | None
    findings: tuple[str, ...] = ()
    duration: float | None = None


class Noise(Record, frozen=True, kw_only=True):
    """How far two measurements of the same build lie apart on this machine.

    `deviation`: standard deviation s_d of an ABBA block's d about its true value 0, over `blocks`
    blocks. `deviation_high`: its upper 95 % confidence bound; few blocks leave it far above.
    `resolvable`: relative change that a gate of ten blocks tells with 90 % power if s_d holds.
    `between`: standard deviation of log medians between sessions, None before three were kept.
    """

    how: How = "measured"
    deviation: float
    deviation_high: float
    blocks: int
    resolvable: float
    run: NoiseRun
    between: float | None = None
    sessions: int = 1
    kept_in: str = ""


class Diagnosis(Record, frozen=True, kw_only=True):
    """All that doctor learned: `noise` is None where the A/A run was left out or failed."""

    schema: str = SCHEMA
    environment: Environment
    fingerprint: str
    checks: tuple[Check, ...]
    noise: Noise | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the checks found, the serious first."""
        order = ("serious", "warning", "info")
        unsorted = [finding for check in self.checks for finding in check.findings]
        return tuple(sorted(unsorted, key=lambda finding: order.index(finding.severity)))

    @property
    def healthy(self) -> bool:
        """True where nothing worse than "info" was found."""
        return all(finding.severity == "info" for finding in self.findings)

    def save(self, path: str | Path) -> Path:
        """Write the record as JSON, whole or not at all, and return the path.

        Raises InputError `output-unwritable`.
        """
        rendering.text(self, "json", path)
        return Path(path)
