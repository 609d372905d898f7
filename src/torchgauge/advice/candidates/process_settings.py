"""Candidates that are settings of the process: threads and the allocator."""

from __future__ import annotations

from collections.abc import Callable

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.records.target import Facts

_SETTINGS = {"onnxruntime": "intra_op_num_threads", "openvino": "INFERENCE_NUM_THREADS"}


def _single(_facts: Facts) -> int:
    return 1


def _cores(facts: Facts) -> int:
    return min(facts.physical_cores or facts.cores, facts.cores)


def _code(facts: Facts, number: int) -> str:
    if facts.runtime:
        return f"model = model.reopen({_SETTINGS.get(facts.runtime, 'threads')}={number})"
    return f"torch.set_num_threads({number})"


def _threads(id: str, title: str, number: Callable[[Facts], int]) -> Candidate:
    def reason(facts: Facts) -> str | None:
        if facts.cuda:
            return "The work is on a GPU."
        if facts.runtime and facts.runtime not in _SETTINGS:
            return "The runtime chooses its threads."
        thread_count = number(facts)
        if thread_count == facts.threads:
            return f"It runs on {thread_count} already."
        if number is not _single and thread_count == 1:
            return "That is one thread, which is a candidate of its own."
        return None

    return Candidate(
        id=id,
        title=title,
        code=lambda facts: _code(facts, number(facts)),
        reason=reason,
        order="process",
        group="threads",
        needs_module=False,
    )


_THREADS = (
    _threads("threads-one", "one thread", _single),
    _threads("threads-half", "half the threads", lambda facts: max(1, facts.threads // 2)),
    _threads("threads-cores", "a thread per physical core", _cores),
    Candidate(
        id="interop-threads",
        title="threads between operators",
        code=fixed("torch.set_num_interop_threads(1)"),
        reason=lambda _facts: "Only forks of TorchScript use them; operators run one by one.",
        order="process",
        needs_module=False,
    ),
)


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


_ALLOCATOR = (
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


CANDIDATES = (*_THREADS, *_ALLOCATOR)
