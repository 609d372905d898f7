"""Memory of one rank against what others published for their jobs, by their settings.

    python benchmarks/parallel_published.py [--only 8B] [--json FILE]

Rows of torchtitan: the model is that of examples/llama_mesh.py with the normalisation of torch of
that time, which was several operators. Programs that torch.compile made are counted as eager ones:
they fuse what is counted apart, and float8 copies of weights are not made. Their published figure
is what the allocator reserved.

Rows of Megatron-LM: megatron_job.py. They published what was allocated at most, and reserved. After
the first iteration the states of Adam had not been there in its passes; of the job's micro-batches
as many are counted as stages, which is as many as are alive.

No verdict may be "fits" where a published figure exceeds the device.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import sys
import time
from pathlib import Path

import torch
from torch import nn

import torchgauge as tg

FOLDER = Path(__file__).resolve().parent
DATA = FOLDER / "parallel_published.json"
EXAMPLE = FOLDER.parent / "examples" / "llama_mesh.py"
GIB, MIB = 2**30, 2**20
DEVICE = "h100"
# Some hold less than published jobs reserved.
DEVICES = (DEVICE, "l40s", "NVIDIA A100-SXM4-40GB")


class RMSNorm(nn.Module):
    """The normalisation as operators of their own, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, L, width) to itself, each row of length √width."""
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (wide * scale).type_as(x) * self.weight


def example():
    """Return the module of the example."""
    spec = importlib.util.spec_from_file_location("llama_mesh", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["llama_mesh"] = module
    spec.loader.exec_module(module)
    return module


class Job:
    """A function that shards, as `tg.count_parallel` takes it, for one published row."""

    def __init__(self, row: dict) -> None:
        self.row = row

    def __call__(self, mesh):
        """Return a rank's model, inputs and training."""
        llama = example()
        shapes = {"8B": llama.Shape(), "70B": llama.LLAMA_70B, "405B": llama.LLAMA_405B}
        shape = dataclasses.replace(
            shapes[self.row["model"]], batch=self.row["batch"], length=self.row["length"],
            norm=RMSNorm,
        )  # fmt: skip
        return llama.job(shape, mesh, self.row["checkpoint"])


def counted(row: dict) -> dict:
    """Return our figures of a row, in GiB, with their ratios to the published one."""
    began = time.process_time()
    record = tg.count_parallel(Job(row), mesh=row["mesh"], on=[DEVICE])
    memory = record.largest.memory
    fit = record.largest.fits[0]
    return {
        "live": memory.peak / GIB,
        "reserved": memory.reserved / GIB,
        "live_ratio": memory.peak / GIB / row["GiB"],
        "reserved_ratio": memory.reserved / GIB / row["GiB"],
        "pools": {pool.stream: pool.peak / GIB for pool in memory.pools},
        "verdict": fit.verdict,
        "lie": fit.verdict == "fits" and row["GiB"] * GIB > fit.memory,
        "seconds": record.seconds or time.process_time() - began,
    }


class MegatronJob:
    """A function that shards, for a job of Megatron-LM."""

    def __init__(self, settings: dict) -> None:
        self.settings = settings

    def __call__(self, mesh):
        """Return a rank's schedule, inputs and training."""
        if str(FOLDER) not in sys.path:
            sys.path.insert(0, str(FOLDER))
        from megatron_job import job
        from megatron_kernels import Settings

        return job(Settings(**self.settings), mesh)


def figures(kind, row: dict, seconds: float) -> dict:
    """Return our figures of a rank of one stage, in MiB, and their ratios to published ones."""
    memory = kind.memory
    live = memory.peak
    if row["iterations"] == 1:
        passes = max(memory.phases["forward"], memory.phases["backward"])
        moments = memory.resting["optimizer"] * 2 // 3  # the rest are masters
        live = max(passes - moments, memory.phases.get("optimizer", 0))
    reserved = live + memory.reserved - memory.peak
    return {
        "live": live / MIB,
        "reserved": reserved / MIB,
        "live_ratio": live / MIB / row["allocated_MiB"],
        "reserved_ratio": reserved / MIB / row["reserved_MiB"],
        "peak": memory.peak / MIB,
        "phase": memory.peak_phase,
        "verdicts": {fit.device: fit.verdict for fit in kind.fits},
        "lie": any(
            fit.verdict == "fits" and row["reserved_MiB"] * MIB > fit.memory for fit in kind.fits
        ),
        "parameters": kind.parameters,
        "seconds": seconds,
    }


def megatron(rows: list[dict], jobs: dict[str, dict]) -> None:
    """Count jobs of Megatron-LM and print each stage beside its published figures, in MiB."""
    print("job                                             stage  allocated  live"
          "            reserved  reserved")  # fmt: skip
    records: dict[str, tg.records.Parallel] = {}
    for row in rows:
        job = jobs[row["model"]]
        if row["model"] not in records:
            settings = MegatronJob(job["settings"])
            records[row["model"]] = tg.count_parallel(settings, mesh=job["mesh"], on=DEVICES)
        record = records[row["model"]]
        row["ours"] = ours = figures(record.kinds[row["stage"]], row, record.seconds)
        print(
            f"{row['model']:47} {row['stage']:5} {row['allocated_MiB']:10.1f}  {ours['live']:8.1f} "
            f"{ours['live_ratio']:.3f} {row['reserved_MiB']:9.0f}  {ours['reserved']:8.1f} "
            f"{ours['reserved_ratio']:.3f}  {', '.join(ours['verdicts'].values())}"
            f"{'  LIE' if ours['lie'] else ''}  {ours['seconds']:.0f} s",
            flush=True,
        )


def main() -> None:
    """Count every row and print it beside the published figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose model contains this")
    parser.add_argument("--json", type=Path, help="write the results there")
    options = parser.parse_args()
    published = json.loads(DATA.read_text())
    rows = [row for row in published["rows"] if options.only in row["model"]]
    llama = [row for row in rows if row.get("kind") != "megatron"]
    torchtitan(llama)
    megatron([row for row in rows if row not in llama], published["jobs"])
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    sys.exit(any(row["ours"]["lie"] for row in rows))


def torchtitan(rows: list[dict]) -> None:
    """Count jobs of torchtitan and print each beside its published figure, in GiB."""
    results: dict[str, dict] = {}
    columns = "model  mesh            batch   length  AC    software         published"
    print(f"{columns}  live          reserved")
    for row in rows:
        settings = {key: row[key] for key in ("model", "mesh", "batch", "length", "checkpoint")}
        key = json.dumps(settings)
        if key not in results:
            results[key] = counted(row)
        ours = results[key] | {
            "live_ratio": results[key]["live"] / row["GiB"],
            "reserved_ratio": results[key]["reserved"] / row["GiB"],
        }
        row["ours"] = ours
        mesh = ",".join(f"{name}={size}" for name, size in row["mesh"].items())
        print(
            f"{row['model']:6} {mesh:15} {row['batch']:5} {row['length']:8}  {row['checkpoint']:5} "
            f"{row['software']:16} {row['GiB']:9.2f}  {ours['live']:6.2f} {ours['live_ratio']:.3f}"
            f"  {ours['reserved']:6.2f} {ours['reserved_ratio']:.3f}  {ours['verdict']}"
            f"{'  LIE' if ours['lie'] else ''}  {ours['seconds']:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
