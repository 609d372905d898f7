"""What takes a moment elsewhere, and would take most of the time here."""

import pytest


@pytest.fixture(scope="package", autouse=True)
def _soon():
    """Roofs are measured briefly."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("torchgauge.compat.quick_roofs.SETS", (2**18, 2**22))
        patched.setattr("torchgauge.device.roofs.roof_measurement.BUDGET", 0.002)
        patched.setattr("torchgauge.device.roofs.roof_measurement.SECONDS", 0.0005)
        yield
