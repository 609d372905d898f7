"""Energy by fake counters: a powercap tree whose files move with a fake clock, and a fake NVML."""

import math
from pathlib import Path

import pytest
from tests.support.fakes import FakeClock

from torchgauge.analyze.work.energy import CounterReadings, consumed, window_length
from torchgauge.analyze.work.energy import energy as energy_of
from torchgauge.device import energy as counters
from torchgauge.device.cpu import SystemFiles
from torchgauge.errors import MissingExtraError
from torchgauge.measure.work.energy import of_calls
from torchgauge.report.content import section as time_sections
from torchgauge.report.content.generation.generation import _energy

RANGE = 262_143_328_850  # µJ, as Intel's packages have it
CALL = 0.02  # seconds


class Zone:
    """A counter of the powercap tree that takes `watts`, in steps of a millisecond."""

    def __init__(self, folder: Path, name: str, watts: float, start: int = 0) -> None:
        self.watts, self.total, self.file = watts, float(start), folder / "energy_uj"
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text(f"{RANGE}\n")
        self.file.write_text(f"{start}\n")

    def run(self, seconds: float) -> None:
        self.total = (self.total + self.watts * seconds * 1e6) % RANGE
        self.file.write_text(f"{int(self.total)}\n")


class Machine(FakeClock):
    """A clock whose every reading takes 0.2 ms, in which the counters move by whole steps."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root, self.zones = root / "sys/class/powercap", []
        (root / "proc").mkdir()
        (root / "proc/cpuinfo").write_text("flags\t\t: fpu vme\n")
        self.files, self.stepped, self.after = SystemFiles(root), 0, None

    def zone(self, folder: str, name: str, watts: float, start: int = 0) -> Zone:
        self.zones.append(Zone(self.root / folder, name, watts, start))
        return self.zones[-1]

    def now(self) -> int:
        self.advance(2e-4)
        return self.time

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        steps = self.time // 1_000_000 - self.stepped
        self.stepped += steps
        if steps:
            for zone in self.zones:
                zone.run(steps * 1e-3)

    def energy(self, device: str = "cpu", **amounts: int):
        def call() -> None:
            self.advance(CALL)
            if self.after is not None and self.time > 3e9:
                self.after()
                self.after = None

        return of_calls(call, device, files=self.files, clock=self, sleep=self.advance, **amounts)


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


def test_packages_and_memories_are_added_and_parts_of_a_package_are_not(machine):
    machine.zone("intel-rapl:0", "package-0", 50)
    machine.zone("intel-rapl:0:0", "core", 40)
    machine.zone("intel-rapl:0:1", "dram", 10)
    machine.zone("intel-rapl:1", "package-1", 30)
    machine.zone("intel-rapl:2", "psys", 120)
    machine.zone("intel-rapl-mmio:0", "package-0", 50)
    energy = machine.energy(samples=4, tokens=10)
    assert [(c.name, c.part) for c in energy.counters] == [
        ("package 0", "package"), ("memory 0", "dram"), ("package 1", "package"),
    ]  # fmt: skip
    assert energy.power == pytest.approx(90, rel=0.01)
    # A window also has the clock's own readings: a call is as long as its share of the windows.
    per_call = energy.duration / energy.calls
    assert energy.joules == pytest.approx(90 * per_call, rel=0.005)
    assert energy.interval.low <= 90 * per_call <= energy.interval.high
    assert energy.per_sample == energy.joules / 4
    assert energy.per_token == energy.joules / 10
    assert not energy.at_least
    assert energy.above_idle == pytest.approx(0, abs=0.01 * energy.joules)
    first = energy.counters[0]
    assert first.idle_power == pytest.approx(50, rel=0.01)
    assert first.period == pytest.approx(1e-3, rel=0.2)
    assert first.resolution == pytest.approx(0.05, rel=0.1)
    assert len(energy.window_times) >= 5
    assert min(energy.window_times) >= 0.5


def test_a_counter_that_wraps_around_is_added_up(machine):
    machine.zone("intel-rapl:0", "package-0", 50, start=RANGE - 120_000_000)  # 2.4 s before it
    energy = machine.energy()
    assert sum(counter.wraps for counter in energy.counters) == 1
    assert energy.power == pytest.approx(50, rel=0.01)
    assert not energy.warnings


def test_a_reset_is_no_wrap_and_its_window_is_left_out(machine):
    zone = machine.zone("intel-rapl:0", "package-0", 50, start=10**9)

    def reset() -> None:
        zone.total = 0.0

    machine.after = reset
    energy = machine.energy()
    assert [w.id for w in energy.warnings] == ["energy-counter-reset"]
    assert energy.counters[0].windows.count(None) == 1
    assert (
        energy.calls
        == sum(energy.window_calls) - energy.window_calls[energy.counters[0].windows.index(None)]
    )
    assert energy.power == pytest.approx(50, rel=0.01)


def readings(name: str, part: str, values: tuple[float, ...], **fields) -> CounterReadings:
    return CounterReadings(
        name, part, values=values, idle=1.0, resolution=0.1, period=0.1, **fields
    )


PACKAGE = (0.0, 10.0, 20.0, 5.0, 15.0)  # reset in the third window


def test_windows_that_are_too_long_were_not_reset():
    package = readings("package 0", "package", PACKAGE, range=20_000.0)
    result = energy_of([package], (1.0, 11.0, 1.0, 1.0), (1, 1, 1, 1), own="package")
    assert [(w.id, w.message.partition(" in ")[2]) for w in result.warnings] == [
        ("energy-counter-reset", "1 windows, left out."),
        ("energy-counter-wrapped", "1 windows, left out."),
    ]
    assert (result.joules, result.calls) == (10.0, 2)


@pytest.mark.parametrize(
    ("memory", "joules", "at_least"),
    [((0, 2, 4, 6, 8), 12, False), ((8, 2, 1, 4, 2), 10, True), ((8, 2, 1, 4, 6), 12, False)],
)
def test_a_memory_that_fails_in_the_other_windows_is_left_out(memory, joules, at_least):
    counters = [readings("package 0", "package", PACKAGE), readings("memory 0", "dram", memory)]
    result = energy_of(counters, (1.0,) * 4, (1,) * 4, own="package")
    assert (result.joules, result.at_least) == (joules, at_least)
    assert ("energy-counter-unknown" in [w.id for w in result.warnings]) == at_least


def test_a_token_has_the_interval_of_its_call():
    package = readings("package 0", "package", (0.0, 9.0, 20.0, 30.0))
    result = energy_of([package], (1.0,) * 3, (1,) * 3, own="package", tokens=10)
    rows = {row.label: row.note for row in time_sections.energy(result).rows}
    assert rows["a call"] == "95 %: 7.516 J … 12.48 J"
    assert rows["a token"] == "95 %: 751.6 mJ … 1.248 J"
    assert _energy(result) == "1.00 J ± 25 %"


def test_a_package_that_may_not_be_read_makes_the_sum_unknown(machine, monkeypatch):
    machine.zone("intel-rapl:0", "package-0", 50)
    machine.zone("intel-rapl:1", "package-1", 30)
    _deny(monkeypatch, "intel-rapl:1/")
    energy = machine.energy()
    assert energy.joules is None
    assert "chmod" in energy.reason
    assert energy.counters[0].joules > 0
    assert energy.counters[1].joules is None


def test_without_the_memory_it_is_at_least_so_much(machine, monkeypatch):
    machine.zone("intel-rapl:0", "package-0", 50)
    machine.zone("intel-rapl:0:1", "dram", 10)
    _deny(monkeypatch, "intel-rapl:0:1/")
    energy = machine.energy()
    assert energy.at_least
    assert energy.power == pytest.approx(50, rel=0.01)
    assert [w.id for w in energy.warnings] == ["energy-counter-unknown"]


def _deny(monkeypatch, part: str) -> None:
    plain = open

    def denied(path, *args, **kwargs):
        if part in str(path) and str(path).endswith("energy_uj"):
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path, *args, **kwargs)

    monkeypatch.setattr("builtins.open", denied)


@pytest.mark.parametrize("broken", ["standing still", "no range", "no number"])
def test_a_broken_counter_is_unknown_and_never_zero(broken, machine):
    zone = machine.zone("intel-rapl:0", "package-0", 0 if broken == "standing still" else 50)
    if broken == "no range":
        (zone.file.parent / "max_energy_range_uj").unlink()
    if broken == "no number":
        zone.file.write_text("nothing")
        zone.run = lambda _: None
    energy = machine.energy()
    assert energy.joules is None
    assert energy.reason
    assert energy.counters[0].reason == energy.reason


def test_a_counter_that_fails_while_its_steps_are_watched_is_unknown(machine):
    zone = machine.zone("intel-rapl:0", "package-0", 50)
    machine.zone("intel-rapl:1", "package-1", 50)
    plain, readings = zone.run, []

    def run(seconds: float) -> None:
        plain(seconds)
        readings.append(seconds)
        if machine.time > 1.1e9:  # after the second without calls
            zone.file.write_text("")

    zone.run = run
    energy = machine.energy()
    assert energy.joules is None
    assert "could no longer be read" in energy.counters[0].reason
    assert energy.counters[1].joules is not None


def test_in_a_virtual_machine_nothing_is_known(machine):
    machine.zone("intel-rapl:0", "package-0", 50)
    (machine.root.parents[2] / "proc/cpuinfo").write_text("flags : fpu hypervisor\n")
    energy = machine.energy()
    assert (energy.joules, energy.reason) == (None, counters.VIRTUAL)
    assert time_sections.energy(energy).how == "unknown"


def test_without_counters_nothing_is_known(machine):
    assert machine.energy().reason == counters.NO_COUNTERS


def test_without_zeus_its_extra_is_named(monkeypatch):
    monkeypatch.setattr(counters.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError) as caught:
        counters.check_available()
    assert "torchgauge-profiler[energy]" in caught.value.remedy


class Driver:
    """NVML of GPUs by UUID, in another order than torch's; `powers` None has no counter."""

    def __init__(self, machine: Machine, powers: list[float | None]) -> None:
        import pynvml

        self.machine, self.powers, self.error = machine, powers, pynvml.NVMLError
        self.begin = machine.time

    def install(self, monkeypatch) -> None:
        import pynvml

        for name in ("nvmlInit", "nvmlShutdown"):
            monkeypatch.setattr(pynvml, name, lambda: None)
        number = {"nvmlDeviceGetHandleByUUID": lambda uuid: int(uuid[-1])}
        number["nvmlDeviceGetIndex"] = number["nvmlDeviceGetHandleByIndex"] = lambda handle: handle
        for name, function in number.items():
            monkeypatch.setattr(pynvml, name, function)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetC2cModeInfoV", self.missing)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", self.millijoules)

    def missing(self, _handle):
        raise self.error(3)  # not supported

    def millijoules(self, handle):
        if self.powers[handle] is None:
            self.missing(handle)
        step = self.machine.time // 20_000_000  # every 20 ms
        return int(7e6 + step * 0.020 * self.powers[handle] * 1e3)


def _with_gpus(machine, monkeypatch, *powers):
    Driver(machine, list(powers)).install(monkeypatch)
    uuids = {number: f"GPU-{number}" for number in range(len(powers))}
    monkeypatch.setattr(counters, "_gpus_in_use", lambda _: uuids)
    machine.zone("intel-rapl:0", "package-0", 50)
    return machine.energy("cuda:0")


def test_gpus_in_use_and_packages_are_added(machine, monkeypatch):
    energy = _with_gpus(machine, monkeypatch, 300, 100)
    assert [c.name for c in energy.counters] == ["GPU 0", "GPU 1", "package 0"]
    assert energy.power == pytest.approx(450, rel=0.02)
    assert energy.counters[0].period == pytest.approx(0.02, rel=0.1)
    low, high = energy.interval.low, energy.interval.high
    truth = 450 * energy.duration / energy.calls
    assert low <= truth <= high


def test_a_gpu_without_a_counter_makes_the_sum_unknown(machine, monkeypatch):
    energy = _with_gpus(machine, monkeypatch, 300, None)
    assert energy.joules is None
    assert "no energy counter" in energy.reason
    assert [c.joules is None for c in energy.counters] == [False, True, False]


def test_a_slow_counter_gets_longer_windows():
    assert window_length([1e-3]) == 0.5
    assert window_length([1e-3, 0.1]) == pytest.approx(2.0)


def test_a_fall_is_a_wrap_only_where_it_is_plausible():
    assert consumed(9_999.0, 1.0, 1.0, 10_000.0) == (2.0, True)
    assert consumed(5.0, 1.0, 1.0, 262_143.0) == (None, False)
    assert consumed(5.0, 1.0, 1.0, None) == (None, False)
    assert consumed(5.0, 6.5, 1.0, None) == (1.5, False)


def test_a_counter_that_may_have_wrapped_twice_is_unknown(machine, monkeypatch):
    assert consumed(5.0, 6.0, 132.0, 262_143.0) == (None, False)
    machine.zone("intel-rapl:0", "package-0", 50)
    monkeypatch.setattr(f"{__name__}.CALL", 140.0)
    energy = machine.energy()
    assert energy.joules is None
    assert "more than once" in energy.reason


def test_without_a_counter_of_the_memory_the_report_says_so(machine):
    machine.zone("intel-rapl:0", "package-0", 50)
    machine.zone("intel-rapl:0:0", "core", 40)
    rows = {row.label: row for row in time_sections.energy(machine.energy()).rows}
    assert rows["memory"].value == "unknown"
    machine.zone("intel-rapl:0:1", "dram", 10)
    assert "memory" not in {row.label for row in time_sections.energy(machine.energy()).rows}


def test_the_counters_of_zeus_agree_where_nothing_wraps(machine):
    from zeus.device.cpu.rapl import RAPLFile

    zone = machine.zone("intel-rapl:0", "package-0", 50, start=123_456)
    (counter,) = counters.processor_counters(machine.files)
    assert counter.read() == pytest.approx(RAPLFile(str(zone.file.parent)).last_energy * 1e-6)
    assert math.isclose(counter.range, RANGE * 1e-6)
