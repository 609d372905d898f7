"""What every test relies on."""

import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_reaches_children():
    """A run started in the background has SIGINT ignored, and what it starts would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
