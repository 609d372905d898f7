"""Measuring in fresh processes: real children, and what becomes of their answers."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.errors import InputError, MeasurementError, user_traceback
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes import child, processes
from torchgauge.measure.processes.processes import in_fresh_process, repeated
from torchgauge.progress import Silent
from torchgauge.records.latency.latency import LatencyRun
from torchgauge.targets.builds.source import Source

QUICK = LatencyOptions(warmup=0, iterations=2)
ENDLESS = LatencyOptions(warmup=0, iterations=10**6)


def children():
    return psutil.Process().children()


@pytest.fixture(autouse=True)
def _no_child_is_left():
    before = children()
    yield
    assert [child for child in children() if child not in before] == []


def interrupt_when(file, *, times=1):
    """Interrupt this process as soon as `file` is there: a child that measures makes it."""

    def wait():
        while not file.exists():
            time.sleep(0.02)
        for _ in range(times):
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


def run(*, median=1e-3, stop="iterations done"):
    return LatencyRun(
        samples=(median,) * 3, warmup=0, steady=True, first_call=median, median=median,
        interval=None, autocorrelation=1.0, stop=stop,
    )  # fmt: skip


def answering(*answers):
    """Stand in for `in_fresh_process`: the runs and errors that the children end with."""
    left = list(answers)

    def answer(_source, _options):
        found = left.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    answer.left = left
    return answer


def killed():
    return MeasurementError("A measuring process was killed by SIGKILL.", id="child-killed")


@pytest.mark.slow
def test_fresh_processes_each_build_the_model_anew():
    model, factor = nn.Linear(8, 8), torch.ones(8)  # both travel by value
    latency = tg.measure_latency(
        lambda x: model(x) * factor, torch.ones(1, 8), processes=2, iterations=4
    )
    assert [len(run.steady_samples) for run in latency.processes] == [4, 4]
    assert latency.interval is None
    assert len({run.samples for run in latency.processes}) == 2


def test_what_cannot_travel_is_refused():
    lock = threading.Lock()
    with pytest.raises(InputError) as caught:
        tg.measure_latency(lambda: lock.locked(), processes=2)
    assert caught.value.id == "not-picklable"


def test_a_disk_without_room_is_said(monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(processes, "write_request", full)
    with pytest.raises(InputError) as caught:
        tg.measure_latency(torch.nn.Linear(2, 2), torch.ones(1, 2), processes=2)
    assert caught.value.id == "output-unwritable"
    assert "No space left" in caught.value.cause


@pytest.mark.slow
def test_a_child_measures_under_the_settings_of_its_parent(tmp_path):
    """The parent is a process of its own too: some settings cannot be taken back."""
    parent = """
        import pathlib, sys
        import torch
        from torchgauge.device import settings
        from torchgauge.measure.latency.latency_options import LatencyOptions
        from torchgauge.measure.processes.processes import in_fresh_process
        from torchgauge.targets.builds.source import Source

        class Forward:
            def __init__(self, seen):
                self.seen = seen

            def __setstate__(self, state):
                assert torch.get_default_dtype() == torch.float64  # where a model is built
                self.seen = state["seen"]

            def __call__(self):
                pathlib.Path(self.seen).write_text(repr(sorted(settings.read().items())))

        if __name__ == "__main__":
            torch.set_num_threads(1)
            torch.set_num_interop_threads(3)
            torch.set_default_dtype(torch.float64)
            torch.set_flush_denormal(True)
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.backends.cudnn.benchmark = True
            torch.backends.mkldnn.enabled = False
            torch.backends.cuda.matmul.fp32_precision = "tf32"
            before = settings.read()
            source = Source.of_object(Forward(sys.argv[1]), None)
            in_fresh_process(source, LatencyOptions(warmup=0, iterations=1))
            assert before["interop threads"] == 3 and before["threads"] == 1
            assert "cuda.matmul.allow_tf32" not in before  # torch cannot say it any more
            assert before["cuda.matmul.fp32_precision"] == "tf32"
            seen = pathlib.Path(sys.argv[1]).read_text()
            assert seen == repr(sorted(before.items())), seen
    """
    path = tmp_path / "parent.py"
    path.write_text(textwrap.dedent(parent))
    done = subprocess.run(
        [sys.executable, path, tmp_path / "seen"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_error_arrives_with_its_class_and_the_users_traceback(tmp_path):
    path = tmp_path / "mymodel.py"
    path.write_text("def broken(x):\n    raise KeyError('missing thing')  # my line\n")
    code = compile(path.read_text(), str(path), "exec")
    names = {}
    exec(code, names)
    with pytest.raises(MeasurementError) as caught:
        in_fresh_process(Source.of_object(names["broken"], torch.ones(3)), QUICK)
    assert caught.value.id == "forward-raised"
    assert "missing thing" in caught.value.cause
    assert "# my line" in user_traceback(caught.value)
    assert "src/torchgauge" not in user_traceback(caught.value)


@pytest.mark.slow
def test_an_error_that_no_file_can_hold_arrives_all_the_same():
    names = {}
    exec("def broken(x):\n    raise ValueError('half a \\ud800')", names)
    with pytest.raises(MeasurementError) as caught:
        in_fresh_process(Source.of_object(names["broken"], torch.ones(3)), QUICK)
    assert "half a \\ud800" in caught.value.cause


@pytest.mark.slow
def test_bad_input_stays_bad_input_when_a_child_finds_it():
    class Sent:
        def __call__(self):
            return 1

        def __reduce__(self):
            return int, ("not a number",)

    with pytest.raises(InputError) as caught:
        in_fresh_process(Source.of_object(Sent(), None), QUICK)
    assert caught.value.id == "not-picklable"
    assert caught.value.exit_code == 2
    assert "not a number" in caught.value.cause


@pytest.mark.slow
def test_the_second_of_three_killed_leaves_the_first(tmp_path):
    seen, here = tmp_path / "seen", os.getpid()

    def killed_the_second_time():
        if seen.exists() and seen.read_text() != str(os.getpid()) != str(here):
            os.kill(os.getpid(), signal.SIGKILL)
        seen.write_text(str(os.getpid()))

    profile = tg.profile(killed_the_second_time, processes=3, iterations=2)
    assert len(profile.latency.processes) == 1
    (warning,) = [w for w in profile.latency.warnings if w.failed]
    assert warning.id == "child-killed"
    assert warning.probe == "latency"
    assert warning.message == "Process 2 of 3: A measuring process was killed by SIGKILL."
    # It would kill this process too.
    assert {w.probe for w in profile.warnings if w.id == "skipped"} == {
        "system",
        "cost",
        "memory",
        "timeline",
    }
    assert not profile.complete


def test_the_first_failure_ends_the_repetition(monkeypatch):
    fake = answering(run(), run(), killed(), run())
    monkeypatch.setattr(processes, "in_fresh_process", fake)
    source = Source.of_object(print, None)
    runs, warnings = repeated(source, LatencyOptions(processes=4, iterations=1), Silent())
    assert len(runs) == 2
    assert [w.message[:14] for w in warnings] == ["Process 3 of 4"]
    assert len(fake.left) == 1


def test_without_any_run_the_error_is_raised(monkeypatch):
    monkeypatch.setattr(processes, "in_fresh_process", answering(killed(), run()))
    with pytest.raises(MeasurementError) as caught:
        repeated(Source.of_object(print, None), LatencyOptions(processes=2), Silent())
    assert caught.value.id == "child-killed"


def test_ctrl_c_keeps_the_runs_there_are(monkeypatch):
    source, options = Source.of_object(print, None), LatencyOptions(processes=3)
    monkeypatch.setattr(processes, "in_fresh_process", answering(run(), KeyboardInterrupt()))
    runs, warnings = repeated(source, options, Silent())
    assert [one.stop for one in runs] == ["interrupted"]
    assert warnings == []
    fake = answering(run(), run(stop="interrupted"), run())
    monkeypatch.setattr(processes, "in_fresh_process", fake)
    runs, _ = repeated(source, options, Silent())
    assert [one.stop for one in runs] == ["iterations done", "interrupted"]
    monkeypatch.setattr(processes, "in_fresh_process", answering(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        repeated(source, options, Silent())


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_brings_back_what_the_child_has(tmp_path, times, monkeypatch):
    """The terminal tells both processes, and then this one tells the child again."""
    started = tmp_path / "started"
    send = subprocess.Popen.send_signal

    def several(child, number):
        for _ in range(times):
            send(child, number)
            time.sleep(0.005)

    def slow():
        started.touch()
        time.sleep(0.02)

    monkeypatch.setattr(subprocess.Popen, "send_signal", several)
    interrupt_when(started)
    found = in_fresh_process(Source.of_object(slow, None), ENDLESS)
    assert found.stop == "interrupted"
    assert min(found.samples) >= 0.02


def test_only_the_first_interrupt_interrupts_a_child():
    before = signal.signal(signal.SIGINT, child.take_the_first)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.parametrize(("patience", "times"), [(0.5, 1), (60, 2)])
def test_a_child_that_takes_no_interrupt_is_killed(tmp_path, monkeypatch, patience, times):
    """After some seconds, or at the second Ctrl-C."""
    started = tmp_path / "started"
    monkeypatch.setattr(processes, "PATIENCE", patience)

    def deaf():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        started.touch()
        time.sleep(600)

    interrupt_when(started, times=times)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        in_fresh_process(Source.of_object(deaf, None), QUICK)
    assert time.monotonic() - start < 600


def test_a_child_that_does_not_end_is_stopped(monkeypatch):
    monkeypatch.setattr(processes, "START_LIMIT", 0.2)
    monkeypatch.setattr(processes, "BUDGET_FACTOR", 0.0)
    with pytest.raises(MeasurementError) as caught:
        in_fresh_process(Source.of_object(time.sleep, 60), QUICK)
    assert caught.value.id == "child-timeout"


def child_that(monkeypatch, tmp_path, code):
    """Put a small program in the place of the measuring child."""
    path = tmp_path / "child.py"
    path.write_text("import sys\nfrom pathlib import Path\nfolder = Path(sys.argv[1])\n" + code)
    monkeypatch.setattr(processes, "CHILD", path)


@pytest.mark.parametrize(
    "answer",
    [b"", b'{"value": {"samples": [0.1,', b"\xff\xfe", b"{}", b'{"value": {"samples": "x"}}'],
)
def test_an_answer_that_is_garbage_is_a_failed_child(monkeypatch, tmp_path, answer):
    child_that(monkeypatch, tmp_path, f"(folder / 'answer').write_bytes({answer!r})")
    with pytest.raises(MeasurementError) as caught:
        in_fresh_process(Source.of_object(print, None), QUICK)
    assert caught.value.id == "child-failed"
    assert caught.value.cause


def test_no_answer_is_a_failed_child_whose_last_words_are_shown(monkeypatch, tmp_path):
    code = "sys.stderr.write('noise\\n' * 10**5 + 'my last words')\nsys.exit(3)"
    child_that(monkeypatch, tmp_path, code)
    with pytest.raises(MeasurementError) as caught:
        in_fresh_process(Source.of_object(print, None), QUICK)
    assert caught.value.id == "child-failed"
    assert caught.value.cause.startswith("Exit code 3. noise")
    assert caught.value.cause.endswith("my last words")
    assert len(caught.value.cause) < 100


@pytest.mark.slow
def test_a_process_that_the_model_started_does_not_hold_up_the_answer(tmp_path):
    pid = tmp_path / "pid"

    def starts_another():
        if not pid.exists():
            pid.write_text(str(subprocess.Popen(["sleep", "600"]).pid))

    try:
        in_fresh_process(Source.of_object(starts_another, None), QUICK)
        assert runs_still(int(pid.read_text()))
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def runs_still(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_no_child_outlives_a_killed_parent(tmp_path):
    pid = tmp_path / "pid"
    path = tmp_path / "parent.py"
    path.write_text(
        textwrap.dedent(f"""
        import os, time, pathlib
        import torchgauge as tg

        def slow():
            if not pathlib.Path({str(pid)!r}).exists():
                whole = pathlib.Path({str(pid)!r} + ".part")
                whole.write_text(str(os.getpid()))
                whole.rename({str(pid)!r})  # a reader never sees half of it
            time.sleep(0.02)

        tg.measure_latency(slow, processes=2, iterations=10**6)
        """)
    )
    own = {**os.environ, "TMPDIR": str(tmp_path)}  # nobody is left to empty it
    with subprocess.Popen([sys.executable, path], env=own) as parent:
        while not pid.exists() and parent.poll() is None:
            time.sleep(0.05)
        parent.kill()
    orphan = int(pid.read_text())
    assert orphan != parent.pid
    deadline = time.monotonic() + 120
    while runs_still(orphan) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not runs_still(orphan)
