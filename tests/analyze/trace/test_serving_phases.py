"""Steps of inference servers, by the names that vLLM, SGLang and ATOM give them."""

import pytest
from tests.support.kineto_events import kernel, launch, mark, read, span

from torchgauge.analyze.trace.rank_trace import rank_trace

US = 1e-6


def step(name, begin, host, *kernels):
    """A step on the host with its kernels, which run later on the device."""
    parts = [mark(name, begin, host)]
    for number, (at_device, duration) in enumerate(kernels):
        correlation = 1 + begin * 10 + number
        parts += [
            launch(correlation, begin + 1 + number),
            kernel("gemm", at_device, duration, correlation),
        ]
    return parts


def serving(*parts):
    return rank_trace(read(*parts), "trace.json")[0].serving


def test_vllm_says_requests_and_tokens_of_both_phases():
    phases = serving(
        step("execute_context_2(512)_generation_0(0)", 0, 100, (200, 80), (281, 20)),
        step("execute_context_1(64)_generation_3(3)", 150, 50, (400, 30)),
        step("execute_context_0(0)_generation_4(4)", 250, 40, (500, 10)),
        step("execute_context_0(0)_generation_4(4)", 350, 44, (600, 14)),
    )
    assert [phase.phase for phase in phases] == ["prefill", "mixed", "decode"]
    prefill, mixed, decode = phases
    assert (prefill.steps, prefill.requests, prefill.tokens) == (1, 2, 512)
    assert (mixed.requests, mixed.tokens) == (4, 67)
    assert (decode.steps, decode.requests, decode.tokens) == (2, 8, 8)
    assert prefill.device == pytest.approx(100 * US)
    assert decode.step_device == pytest.approx(12 * US)
    assert decode.host == pytest.approx(84 * US)
    assert decode.distance == pytest.approx(100 * US)
    assert prefill.distance == pytest.approx(150 * US)


@pytest.mark.parametrize(
    ("name", "phase", "requests", "tokens"),
    [
        ("step[EXTEND bs=2 toks=4096]", "prefill", 2, 4096),
        ("step[EXTEND bs=2 toks=12 c_sqsq=80 c_sqsk=120 c_sk=20]", "prefill", 2, 12),
        ("step[DECODE bs=16]", "decode", 16, 16),
        ("step[MIXED bs=3 toks=40]", "mixed", 3, 40),
        ("step[TARGET_VERIFY bs=4]", "target verify", 4, None),
        ("prefill[bs=2 tok=16384]", "prefill", 2, 16384),
        ("decode[bs=8]", "decode", 8, 8),
        ("execute_new_1_cached_0", "prefill", 1, None),
        ("execute_new_0_cached_7", "decode", 7, None),
    ],
)
def test_other_servers_have_names_of_their_own(name, phase, requests, tokens):
    (found,) = serving(step(name, 0, 100, (200, 80)))
    assert (found.phase, found.requests, found.tokens) == (phase, requests, tokens)
    assert found.distance is None


def test_work_launched_outside_of_steps_belongs_to_none():
    (found,) = serving(
        step("step[DECODE bs=1]", 0, 100, (200, 80)),
        [launch(900, 150), kernel("other", 300, 50, 900)],
        [span("cuda_runtime", "cudaLaunchKernel", 50, 2, 9, correlation=901)],
        kernel("of another thread", 360, 50, 901),
    )
    assert found.device == pytest.approx(80 * US)


def test_other_programs_have_no_phases():
    assert serving(step("ProfilerStep#1", 0, 100, (200, 80))) == ()


def test_phases_are_a_table_on_the_terminal():
    record, _ = rank_trace(read(step("step[EXTEND bs=2 toks=64]", 0, 100, (200, 80))), "a.json")
    shown = " ".join(str(record).split())
    assert "Prefill and decode" in shown
    assert "prefill 1 2 64 100 µs 80.0 µs –" in shown
