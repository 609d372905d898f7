"""The interfaces as their users wrote them before torchgauge: names, order, defaults."""

import inspect

import pytest

from torchgauge import ModelProfiler, Profiler, detect_regressions, load_baseline, quick_profile

THEIRS = [
    (ModelProfiler, "model_path, device, precision"),
    (ModelProfiler.profile, "input_data, num_runs=100, warmup_runs=10, detailed_analysis=False"),
    (ModelProfiler.benchmark, "configurations"),
    (ModelProfiler.profile_layers, "input_data, layer_names"),
    (
        ModelProfiler.memory_profile,
        "track_allocations=True, track_deallocations=True, memory_snapshots=True",
    ),
    (
        ModelProfiler.gpu_profile,
        "track_kernels=True, track_memory_transfers=True, profile_nvtx=True",
    ),
    (ModelProfiler.generate_html_report, "output_path, include_graphs=True, include_details=True"),
    (ModelProfiler.export_json, "path"),
    (ModelProfiler.export_csv, "path"),
    (load_baseline, "path"),
    (detect_regressions, "baseline, current"),
    (Profiler, ""),
    (Profiler.count_parameters, "model"),
    (Profiler.count_flops, "model, input_shape"),
    (Profiler.measure_memory, "model, input_shape"),
    (Profiler.measure_latency, "model, input_tensor, warmup=10, iterations=100"),
    (Profiler.profile_layer, "layer, input_shape"),
    (Profiler.profile_forward_pass, "model, input_tensor"),
    (Profiler.profile_backward_pass, "model, input_tensor"),
    (quick_profile, "model, input_tensor, profiler=None"),
]


@pytest.mark.parametrize(("call", "theirs"), THEIRS, ids=lambda one: getattr(one, "__name__", ""))
def test_calls_fit_as_they_are_written(call, theirs):
    ours = [one for one in inspect.signature(call).parameters.values() if one.name != "self"]
    wanted = [one.partition("=") for one in theirs.split(", ") if one]
    for parameter, (name, _, default) in zip(ours, wanted, strict=False):
        assert parameter.name == name
        assert parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert not default or str(parameter.default) == default
    assert len(ours) >= len(wanted)
    more = ours[len(wanted) :]
    assert all(one.default is not one.empty for one in more)  # what is ours may be left out
