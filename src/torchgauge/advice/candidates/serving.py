"""What a server does around the model."""

from torchgauge.advice.candidate import Candidate, fixed

CANDIDATES = (
    Candidate(
        id="dynamic-batching",
        title="requests collected into batches",
        code=fixed("requests = queue.collect(most=8, wait=0.005)\nmodel(torch.cat(requests))"),
        reason=lambda _facts: (
            "It depends on how requests arrive: `torchgauge sweep TARGET --batch auto` says what a "
            "batch gains."
        ),
        step="inference",
        needs_module=False,
    ),
    Candidate(
        id="memory-pool",
        title="buffers shared by all requests",
        code=fixed("buffer.copy_(request)\nmodel(buffer)"),
        reason=lambda _facts: "The buffers are the server's, and the inputs here are used again.",
        step="inference",
        needs_module=False,
    ),
)
