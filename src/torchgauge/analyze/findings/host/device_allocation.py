"""Memory is asked from the driver, or given back to it, while the program runs."""

from __future__ import annotations

from torchgauge.analyze.findings.host.delay import delay_rule

RULE = delay_rule(
    "device-allocation",
    "allocation",
    "allocation by the driver",
    remedy="Let the caching allocator keep it: no torch.cuda.empty_cache() in the step, the "
    "largest batch first, PYTORCH_ALLOC_CONF=expandable_segments:True. cudaFree in a step is "
    "a retry near the limit: use less memory. Make pinned buffers once.",
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management",
)
