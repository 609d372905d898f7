"""What every test relies on."""

import dataclasses
import gc
import os
import signal
from types import SimpleNamespace

import pytest
from hypothesis import settings

# A run tells about the change that it tests, not about the examples drawn or a busy machine.
settings.register_profile("torchgauge", derandomize=True, deadline=None)
settings.load_profile("torchgauge")


# Before torch is imported: at these sizes threads wait for each other for most of the time, above
# all where two workers of pytest share two cores. Tests about threads set their number themselves.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Texts are as wide as the terminal is, or as this says.
os.environ["COLUMNS"] = "80"


def pytest_collection_finish() -> None:
    """Leave what is loaded by now to no garbage collector: each recording of memory runs it."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Likewise what the tests of a file have imported and left in caches."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_reaches_children():
    """A run started in the background has SIGINT ignored, and what it starts would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory):
    """What the host remembers of runs and roofs is the user's; tests have a state of their own."""
    os.environ["TORCHGAUGE_STATE"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session", autouse=True)
def short_measurements():
    """Roofs and the use of the machine take no seconds of a test; children's roofs do once.

    A job's few files are read by one process instead of as many as there are cores: each takes
    longer to start than to read them all. That something is frozen is known without counting it,
    which walks all that the tests have imported.
    """
    from torchgauge.device.roofs import roofs
    from torchgauge.measure.effort import EFFORTS
    from torchgauge.measure.memory import memory_warnings as cycles
    from torchgauge.traces import rank_files

    with pytest.MonkeyPatch.context() as patched:
        least = dataclasses.replace(
            roofs.QUICK, largest_product=256, largest_set=2**18, repetitions=0.0, limit=0.0
        )
        patched.setattr(roofs, "QUICK", least)
        patched.setattr(roofs, "numpy_peaks", lambda threads, effort: {})
        patched.setattr(rank_files, "cores", lambda: 1)
        known = SimpleNamespace(collect=gc.collect, get_freeze_count=lambda: 1)
        patched.setattr(cycles, "gc", known)
        # Frozen, and bound as default arguments: only what they hold can be replaced.
        usual = [(effort, effort.system) for effort in EFFORTS.values()]
        for effort, _ in usual:
            object.__setattr__(effort, "system", 0.02)
        yield
        for effort, seconds in usual:
            object.__setattr__(effort, "system", seconds)
