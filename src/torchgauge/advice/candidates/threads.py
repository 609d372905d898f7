"""How many threads an operator has, and how many run operators at the same time."""

from __future__ import annotations

from collections.abc import Callable

from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.records.model_facts import Facts

_SETTINGS = {"onnxruntime": "intra_op_num_threads", "openvino": "INFERENCE_NUM_THREADS"}


def _single(_facts: Facts) -> int:
    return 1


def _half(facts: Facts) -> int:
    return max(1, facts.threads // 2)


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


CANDIDATES = (
    _threads("threads-one", "one thread", _single),
    _threads("threads-half", "half the threads", _half),
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
