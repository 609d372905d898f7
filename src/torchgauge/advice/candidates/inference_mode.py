"""No autograd in inference."""

from torchgauge.advice.candidate import Candidate, fixed

CANDIDATES = (
    Candidate(
        id="inference-mode",
        title="eval() and inference_mode",
        code=fixed("model.eval()\nmodel.forward = torch.inference_mode()(model.forward)"),
        step="inference",
        # Every other candidate is compared with an original that runs so already.
        original="model.forward = torch.inference_mode(False)(torch.enable_grad()(model.forward))",
        group="mode",
    ),
)
