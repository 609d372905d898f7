"""Public recordings, with what an engineer would say of them: first findings, and wrong ones."""

import pytest
from tests.support.paths import public_trace

from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.readers.kineto.kineto import read_events

# The rules of kernels, devices, layers and memory that speak of time.
RULES = frozenset(
    """
    launch-bound idle-host exposed-copies eager-attention math-attention unfused-elementwise casts
    contiguous-copies layout-conversions fills fp32-products float64-products unaligned-products
    single-row-products small-grids partial-waves low-occupancy pageable-copies small-copies
    training-mode composed-layers dense-embedding-gradient recomputation unused-reserve
    zeroed-gradients
    """.split()  # noqa: SIM905
)
EXPECTED = {
    # A small ResNet of which the host launches a kernel every 245 µs; TF32 is on.
    "a100_nccl_rank0of2": {"launch-bound"},
    # Recommendation models; on A100 with embeddings of 647 columns.
    "diff_after_v100": {"fp32-products"},
    "diff_before_a100": {"idle-host", "unaligned-products"},
    # One sentence through a small BERT: 60 kernels in 4 ms.
    "h100_bert_small": {"launch-bound"},
    # A prefill of 16 × 559 tokens in eager mode, busy throughout.
    "h100_qwen_0.5b": {"unfused-elementwise", "composed-layers", "contiguous-copies"},
    # ResNet-50 in bfloat16, channels first.
    "mi300_resnet_ddp_checkpoint_rank0of8": {"layout-conversions"},
    # 4,000 kernels a step in fp32 on Volta.
    "v100_train_memory_events_rank1of2": {"launch-bound", "fp32-products"},
    "v100_train_ns_resolution": {"fp32-products"},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_public_recording_has_the_findings_that_an_engineer_expects(name):
    file = public_trace(name)
    record, _ = rank_trace(read_events(file), file.name)
    assert {found.id for found in record.findings} & RULES == EXPECTED[name]
    for found in record.findings:
        if found.time is not None:
            assert (found.worth or 0.0) <= found.time <= record.window + 1e-9
