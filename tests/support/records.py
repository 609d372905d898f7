"""A complete record made by hand, for tests of everything that reads records."""

from torchgauge.records.environment import Environment, Machine, Settings, Software
from torchgauge.records.latency.latency import Latency, LatencyRun, Throughput
from torchgauge.records.memory.memory import Memory, MemoryPoint
from torchgauge.records.profile import ProbeRun, Profile
from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.system import System, SystemSample, Use
from torchgauge.records.target import InputDescription, TargetDescription
from torchgauge.records.work.size import DtypeSize, Size


def environment() -> Environment:
    return Environment(
        created="2026-01-02T03:04:05+00:00",
        machine=Machine(
            system="Linux 6.1",
            architecture="x86_64",
            cpu="A CPU",
            physical_cores=2,
            logical_cores=4,
            usable_cores=4,
            memory=16_000_000_000,
        ),
        software=Software(torchgauge="0.1.0", python="3.11.7", torch="2.13.0"),
        settings=Settings(threads=2),
    )


def latency() -> Latency:
    interval = Interval(low=0.0099, high=0.0101)
    run = LatencyRun(
        samples=(0.013, 0.010, 0.0101, 0.0099, 0.010),
        warmup=1,
        steady=True,
        first_call=0.05,
        median=0.010,
        interval=interval,
        autocorrelation=1.0,
        stop="precision reached",
    )
    return Latency(
        median=0.010,
        mean=0.010,
        std=0.0001,
        min=0.0099,
        max=0.0101,
        p50=0.010,
        p90=0.0101,
        p95=0.0101,
        p99=0.0101,
        interval=interval,
        interval_method="order statistics",
        percentile_intervals={"p50": interval, "p90": None, "p95": None, "p99": None},
        first_call=0.05,
        steady=True,
        stop="precision reached",
        device_time=None,
        processes=(run,),
        warnings=(MeasurementWarning(id="drift", message="It drifts.", probe="latency"),),
    )


def memory() -> Memory:
    return Memory(
        peak=1_000,
        average=800.0,
        parameters=400,
        buffers=100,
        inputs=100,
        outputs=50,
        activations=300,
        gradients=0,
        optimizer=0,
        workspace=50,
        step="inference",
        device="cpu",
        method="allocation events",
        per_sample=250.0,
        rss_before=2_000,
        rss_peak=3_000,
        timeline=(MemoryPoint(time=0, live=600), MemoryPoint(time=10, live=1_000)),
    )


def system() -> System:
    return System(
        interval=0.05,
        duration=1.0,
        calls=100,
        cores=Use(mean=1.9, max=2.0),
        core_count=4,
        machine=Use(mean=0.5, max=0.6),
        other=0.025,
        rss=Use(mean=2_500.0, max=3_000.0),
        cost=0.001,
        disk_read=0.0,
        disk_write=2_000.0,
        network_sent=None,
        network_received=None,
        samples=(SystemSample(time=0.05, cores=1.9, rss=2_500),),
    )


def profile(**changes) -> Profile:
    parts = {
        "target": TargetDescription(
            spec="model.py:make",
            kind="python",
            name="Net",
            device="cpu",
            precision="fp32",
            precision_method="native",
            inputs=(InputDescription(name="0", shape=(2, 3, 8, 8), dtype="float32"),),
            batch=2,
            images=2,
        ),
        "environment": environment(),
        "size": Size(
            parameters=100,
            trainable=90,
            buffers=25,
            parameter_bytes=400,
            buffer_bytes=100,
            by_dtype={"float32": DtypeSize(elements=125, bytes=500)},
            disk_bytes=500,
            disk_source="its state dict's tensors (not written)",
        ),
        "latency": latency(),
        "throughput": Throughput(calls=100.0, samples=200.0, images=200.0),
        "memory": memory(),
        "system": system(),
        "passes": (ProbeRun(probe="latency", duration=1.5),),
    }
    return Profile(**{**parts, **changes})
