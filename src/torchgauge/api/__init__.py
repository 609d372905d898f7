"""The one place that joins target, measurement and record; the command line calls only this."""

from torchgauge.api.advices import advise, advise_request
from torchgauge.api.calibrations import calibrate
from torchgauge.api.comparisons import compare, detect_regressions, load_baseline
from torchgauge.api.conversions import convert_trace
from torchgauge.api.counts import count_cost, count_request, measure_size
from torchgauge.api.gates import compare_targets, gate, gate_records, gate_stored, gate_targets
from torchgauge.api.loops import nvtx, timeline
from torchgauge.api.machine import diagnose
from torchgauge.api.measurements import measure_latency, measure_memory
from torchgauge.api.profiles import profile, profile_request
from torchgauge.api.records import load, load_ranks
from torchgauge.api.snapshots import compare_snapshots, read_snapshot
from torchgauge.api.sweeps import sweep, sweep_request
from torchgauge.api.traces import compare_traces, read_trace

__all__ = [
    "advise",
    "advise_request",
    "calibrate",
    "compare",
    "compare_snapshots",
    "compare_targets",
    "compare_traces",
    "convert_trace",
    "count_cost",
    "count_request",
    "detect_regressions",
    "diagnose",
    "gate",
    "gate_records",
    "gate_stored",
    "gate_targets",
    "load",
    "load_baseline",
    "load_ranks",
    "measure_latency",
    "measure_memory",
    "measure_size",
    "nvtx",
    "profile",
    "profile_request",
    "read_snapshot",
    "read_trace",
    "sweep",
    "sweep_request",
    "timeline",
]
