"""Images in the order of memory that convolutions like best."""

from __future__ import annotations

from torchgauge.advice.candidate import Candidate
from torchgauge.records.model_facts import Facts


def _reason(facts: Facts) -> str | None:
    if not facts.count("Conv2d", "ConvTranspose2d"):
        return "The model has no two-dimensional convolution."
    if not facts.image_inputs:
        return "No input has the four dimensions of images."
    return None if facts.plain_inputs else "Its inputs are not plain tensors."


def _code(facts: Facts) -> str:
    to = "to(memory_format=torch.channels_last) if {0}.dim() == 4 else {0}"
    lines = ["model = model.to(memory_format=torch.channels_last)"]
    if facts.float_args:
        lines.append(f"args = [a.{to.format('a')} for a in args]")
    if facts.float_kwargs:
        lines.append(f"kwargs = {{k: v.{to.format('v')} for k, v in kwargs.items()}}")
    return "\n".join(lines)


CANDIDATES = (
    Candidate(
        id="channels-last",
        title="channels-last memory format",
        code=_code,
        reason=_reason,
        order="layout",
        gain=0.1,
    ),
)
