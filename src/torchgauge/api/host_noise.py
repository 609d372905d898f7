"""What a host's sessions differ by, as its calibration for this work tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchgauge.analyze.noise import workload
from torchgauge.device import calibration

if TYPE_CHECKING:
    from torchgauge.analyze.stored import HostNoise
    from torchgauge.model.profile import Profile


def host_noise(record: Profile) -> HostNoise | None:
    """Return how sessions of the record's host spread on its work; None before three are kept."""
    where = record.environment.machine.fingerprint
    return calibration.between_sessions(where, workload(record.target))
