import pytest

from torchgauge.device.roofs import roofs
from torchgauge.device.roofs.roof_measurement import Effort
from torchgauge.device.roofs.roofs import numpy_peaks

SHORT = Effort("quick", repetitions=0.0, largest_product=256)


def test_numpy_multiplies_in_a_process_of_its_own():
    peaks = numpy_peaks(1, SHORT)
    assert set(peaks) == {"float32", "float64"}
    assert min(peaks.values()) > 0


@pytest.fixture
def child(monkeypatch, tmp_path):
    """A child that answers what the test says."""
    script = tmp_path / "child.py"
    monkeypatch.setattr("torchgauge.workers.CHILD", script)

    def answering(code):
        script.write_text(f"import sys, json, os; sys.stdin.read(); {code}")

    return answering


def answer(cores):
    return f"print(json.dumps({{'float32': {{'peak': 5.0, 'busy_cores': {cores}}}}}))"


def test_a_library_on_more_threads_than_torch_does_not_count(child):
    child(answer(1.9))
    assert numpy_peaks(1, SHORT) == {}
    assert numpy_peaks(2, SHORT) == {"float32": 5.0}


def test_libraries_are_told_their_threads_before_they_are_loaded(child):
    names = " and ".join(f"os.environ[{name!r}] == '3'" for name in roofs.VARIABLES)
    child(f"print(json.dumps({{'float32': {{'peak': 5.0 * ({names}), 'busy_cores': 1}}}}))")
    assert numpy_peaks(3, SHORT) == {"float32": 5.0}


@pytest.mark.parametrize("code", ["sys.exit(1)", "print('no JSON')", "os.kill(os.getpid(), 9)"])
def test_a_child_that_fails_tells_nothing(child, code):
    child(code)
    assert numpy_peaks(1, SHORT) == {}
