"""What every test relies on."""

import os
import signal

import pytest
from hypothesis import settings

# A run tells about the change that it tests, not about the examples drawn or a busy machine.
settings.register_profile("torchgauge", derandomize=True, deadline=None)
settings.load_profile("torchgauge")


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_reaches_children():
    """A run started in the background has SIGINT ignored, and what it starts would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory):
    """What the host remembers of runs and roofs is the user's; tests have a state of their own."""
    os.environ["TORCHGAUGE_STATE"] = str(tmp_path_factory.mktemp("state"))
