"""Where memory comes from: another allocator, or one that gives less back."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.records.model_facts import Facts


def _preloaded(name: str) -> Candidate:
    def reason(facts: Facts) -> str | None:
        if name not in facts.allocators:
            return f"lib{name} is not installed."
        if "LD_PRELOAD" in facts.variables:
            return "LD_PRELOAD is set already."
        return None if facts.kind == "cpu" else "The work is on a GPU."

    return Candidate(
        id=name,
        title=f"{name} instead of malloc",
        code=lambda facts: f"export LD_PRELOAD={facts.allocators.get(name, f'lib{name}.so')}",
        reason=reason,
        language="shell",
        order="process",
        group="malloc",
        gain=0.1,
        needs_module=False,
    )


def _glibc(facts: Facts) -> str | None:
    if not facts.glibc:
        return "These variables are glibc's, and this system has another C library."
    if set(facts.variables) & {"LD_PRELOAD", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES"}:
        return "malloc is set up already (LD_PRELOAD, MALLOC_… or GLIBC_TUNABLES)."
    return None if facts.kind == "cpu" else "The work is on a GPU."


def _segments(facts: Facts) -> str | None:
    if not facts.cuda:
        return "It is a setting of torch's allocator on NVIDIA GPUs."
    if set(facts.variables) & {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}:
        return "The allocator is set up already."
    return None


CANDIDATES = (
    Candidate(
        id="malloc-keep",
        title="malloc that keeps freed memory",
        code=fixed(
            "export MALLOC_MMAP_MAX_=0\nexport MALLOC_TRIM_THRESHOLD_=17179869184\n"
            "export MALLOC_TOP_PAD_=67108864"
        ),
        reason=_glibc,
        language="shell",
        order="process",
        group="malloc",
        gain=0.1,
        needs_module=False,
    ),
    _preloaded("jemalloc"),
    _preloaded("tcmalloc"),
    Candidate(
        id="expandable-segments",
        title="expandable segments of GPU memory",
        code=fixed("export PYTORCH_ALLOC_CONF=expandable_segments:True"),
        reason=_segments,
        language="shell",
        order="process",
        needs_module=False,
    ),
)
