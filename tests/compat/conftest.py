"""What takes a moment elsewhere, and would take most of the time here."""

import pytest
import torch


@pytest.fixture(scope="package", autouse=True)
def _soon():
    """Roofs are measured briefly; one thread waits for no other."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("torchgauge.compat.quick_roofs.SETS", (2**18, 2**22))
        patched.setattr("torchgauge.device.roofs.best_time.BUDGET", 0.002)
        patched.setattr("torchgauge.device.roofs.best_time.SECONDS", 0.0005)
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)
