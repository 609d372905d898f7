"""Profiles of real models through the command line, one process each, as a Markdown table."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from torchgauge import units

SEVENTY = (
    "hf:llama?hidden_size=8192&intermediate_size=28672&num_hidden_layers=80"
    "&num_attention_heads=64&num_key_value_heads=8&vocab_size=128256"
)
TARGETS: tuple[tuple[str, ...], ...] = (
    ("torchvision:resnet50",),
    ("torchvision:vit_b_16",),
    ("hf:bert",),
    ("hf:gpt2",),
    ("hf:llama?num_hidden_layers=2&hidden_size=1024&intermediate_size=2816"
     "&num_attention_heads=16&num_key_value_heads=16",),
    ("hf:mixtral?num_hidden_layers=2&hidden_size=512&intermediate_size=1024"
     "&num_attention_heads=8&num_key_value_heads=4",),
    ("hf:whisper",),
    ("hf:t5",),
    ("hf:mamba?num_hidden_layers=8",),
    ("timm:efficientnet_b0",),
    (SEVENTY, "--device", "meta", "--precision", "bf16"),
)  # fmt: skip


def profile(arguments: tuple[str, ...]) -> tuple[int, dict[str, Any], str]:
    """Return exit code, record and standard error of one run."""
    command = [sys.executable, "-m", "torchgauge", "profile", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def row(record: dict[str, Any]) -> list[str]:
    """Return the cells of one model."""
    size, latency, memory = record["size"], record["latency"], record["memory"]
    cells = [f"{size['parameters']:,}"]
    if latency is None:
        return [*cells, "—", "—", "—", "—", units.size(size["parameter_bytes"])]
    interval = latency["interval"]
    between = units.times(interval["low"], interval["high"]) if interval else "—"
    steady = sum(len(p["samples"]) - p["warmup"] for p in latency["processes"])
    peak = units.size(memory["peak"]) if memory else "failed"
    warned = ", ".join(
        w["id"] for part in (record, latency, memory or {}) for w in part.get("warnings", ())
    )
    return [*cells, units.time(latency["median"]), between, f"{steady} ({latency['stop']})",
            warned or "none", peak]  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="instead of the list")
    parser.add_argument("--budget", default="20")
    options = parser.parse_args()
    targets = [(target,) for target in options.targets] or TARGETS
    print("| target | parameters | latency | 95 % interval | samples | warnings | peak memory |")
    print("|---|---|---|---|---|---|---|")
    for arguments in targets:
        code, record, errors = profile((*arguments, "--budget", options.budget))
        cells = row(record) if "size" in record else [f"failed ({code}): {errors.strip()[-200:]}"]
        print("|", " | ".join([arguments[0], *cells]), "|", flush=True)


if __name__ == "__main__":
    main()
