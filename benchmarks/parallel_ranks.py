"""One fake rank beside real ranks of gloo, setting by setting, as a Markdown table.

Parts, collectives and FLOPs must be equal; of the peaks the table has ratios: of the fake rank's to
what torch.profiler saw on real ranks, and of torch's FSDPMemTracker's. What gloo allocates itself
in a collective (it reduces a copy of all that it scatters) is left out, as no GPU holds it; the
last column has the ratio with it.

    python benchmarks/parallel_ranks.py --ranks 2 4 [--only fsdp]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__)
PORT = 29571
LIMIT = 1500


def cases(world: int) -> list[tuple[dict[str, int], dict[str, str]]]:
    """Return the settings of jobs of so many ranks: the mesh, and what `job` takes."""
    fsdp, tp, ddp = {"fsdp": world}, {"tp": world}, {"ddp": world}
    plain = [
        {"precision": "bf16"},
        {"precision": "fp32"},
        {"checkpoint": "op"},
        {"checkpoint": "full"},
    ]
    settings = [(fsdp, setting) for setting in plain]
    settings += [(fsdp, {"optimizer": "sgd"}), (fsdp, {"optimizer": "sgd-momentum"})]
    settings += [(fsdp, {"optimizer": "adam"})]
    settings += [(tp, setting) for setting in plain]
    settings += [(ddp, setting) for setting in plain]
    if world == 4:
        settings += [({"fsdp": 2, "tp": 2}, setting) for setting in plain]
    return settings


def title_of(mesh: dict[str, int], setting: dict[str, str]) -> str:
    """Return what a case is called."""
    sizes = " ".join(f"{name}={size}" for name, size in mesh.items())
    return f"{sizes} {' '.join(setting.values())}"


def chosen(world: int, only: str) -> list[tuple[dict[str, int], dict[str, str]]]:
    """Return the cases whose title begins with a text."""
    return [case for case in cases(world) if title_of(*case).startswith(only)]


def ranks_of(world: int, only: str, *, fake: bool) -> list[list[dict[str, Any]]]:
    """Return what each rank notes in each case: real ones, or the fake one alone."""
    command = [sys.executable, str(HERE), "--as-rank", str(world), "fake" if fake else "real"]
    command += ["--only", only]
    processes = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if rank else None,
            text=True,
            env=os.environ
            | {"RANK": str(rank), "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"}
            | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(PORT)},
        )
        for rank in range(1 if fake else world)
    ]
    try:
        outputs = [process.communicate(timeout=LIMIT)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    lines = [[json.loads(line) for line in text.splitlines()] for text in outputs]
    return [list(rows) for rows in zip(*lines, strict=True)]


def run_rank(world: int, only: str, *, fake: bool) -> None:
    """Be one rank, and print a line of JSON for each case."""
    import torch
    from torch import distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from torchgauge.measure.parallel.fake_job import fake_job

    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    if not fake:
        dist.init_process_group("gloo")
        dist.Work.wait = unseen(dist.Work.wait)
    for mesh_sizes, setting in chosen(world, only):
        dims = tuple(mesh_sizes.items())
        torch.manual_seed(0)
        if fake:
            with fake_job(dims, rank) as mesh:
                result = noted(mesh, dims, rank, setting, fake=True)
        else:
            names = tuple(mesh_sizes)
            mesh = init_device_mesh("cpu", tuple(mesh_sizes.values()), mesh_dim_names=names)
            result = noted(mesh, dims, rank, setting, fake=False)
        print(json.dumps(result), flush=True)
    if not fake:
        dist.barrier()
        dist.destroy_process_group()


def unseen(wait: Any) -> Any:
    """Return a wait whose operators no dispatch mode sees: gloo scatters by copies in it."""
    from torch.utils._python_dispatch import _disable_current_modes

    def waited(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return wait(*args, **kwargs)

    return waited


def noted(mesh: Any, dims: Any, rank: int, setting: dict[str, str], *, fake: bool) -> Any:
    """Return what a rank notes of a step, and the peak that torch's own tools see."""
    import parallel_models
    from torchgauge.analyze.parallel.rank_lifetimes import groups_of
    from torchgauge.measure.parallel.rank_step import RankStep, adapt_replicas, note_step
    from torchgauge.targets.inputs.inputs import Inputs

    model, inputs, training = parallel_models.job(mesh, **setting)
    if fake:
        adapt_replicas(model)
    step = RankStep(model, Inputs.of(inputs), training)
    counted = note_step(step, groups_of(dims, rank))
    sums: dict[str, list[int]] = {}
    for row in counted.collectives:
        key = f"{row.phase} {row.kind} {row.group} {row.ranks} {row.dtype}"
        calls, size = sums.get(key, (0, 0))
        sums[key] = [calls + row.calls, size + row.bytes]
    flops: dict[str, int] = {}
    for work in counted.work:
        flops[work.phase] = flops.get(work.phase, 0) + work.matmul_flops
    result = {
        "parts": counted.memory.resting,
        "collectives": sums,
        "flops": flops,
        "peak": counted.memory.peak,
        "reserved": counted.memory.reserved,
    }
    if fake and "fsdp" in dict(dims) and len(dims) == 1:
        result["tracker"] = tracked(step)
    if not fake:
        result["profiler"] = profiled(step, sum(counted.memory.resting.values()))
    return result


def tracked(step: Any) -> int:
    """Return the peak by torch's FSDPMemTracker, of the same fake rank."""
    import torch
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker

    tracker = FSDPMemTracker(step.model, step.optimizer)
    tracker.track_inputs(step.inputs.args)
    with tracker:
        step()
    snapshot = tracker.get_tracker_snapshot("peak")
    return int(snapshot[torch.device("cpu")]["Total"])


def profiled(step: Any, resting: int) -> tuple[int, int]:
    """Return the peak by torch.profiler's allocations of a real step, without gloo's and with."""
    from torch.profiler import ProfilerActivity, profile

    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True
    ) as profiler:
        step()
    changes: list[tuple[int, int, int, bool]] = []
    pending = [(root, False) for root in profiler.profiler.kineto_results.experimental_event_tree()]
    while pending:
        event, in_collective = pending.pop()
        in_collective = in_collective or event.name.startswith("c10d::")
        pending += [(child, in_collective) for child in event.children]
        if event.name == "[memory]":
            fields = event.extra_fields
            changes.append((event.start_time_ns, fields.ptr, fields.alloc_size, in_collective))
    own = whole = own_peak = whole_peak = 0
    gloos: set[int] = set()
    for _, address, size, in_collective in sorted(changes):
        whole += size
        whole_peak = max(whole_peak, whole)
        if size > 0 and in_collective:
            gloos.add(address)
        elif size < 0 and address in gloos:
            gloos.discard(address)
        else:
            own += size
            own_peak = max(own_peak, own)
    return resting + own_peak, resting + whole_peak


def main() -> int:
    """Print the table; return 1 where parts, collectives or FLOPs differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--only", default="", help="cases that begin so, such as 'fsdp=2 tp'")
    parser.add_argument("--as-rank", nargs=2, metavar=("WORLD", "KIND"))
    options = parser.parse_args()
    if options.as_rank:
        run_rank(int(options.as_rank[0]), options.only, fake=options.as_rank[1] == "fake")
        return 0
    print("| job | parts | collectives | FLOPs | peak | ranks | tracker | with gloo's |")
    print("| --- | --- | --- | --- | --: | --- | --: | --: |", flush=True)
    differing = 0
    began = time.perf_counter()
    for world in options.ranks:
        fakes = ranks_of(world, options.only, fake=True)
        reals = ranks_of(world, options.only, fake=False)
        settings = chosen(world, options.only)
        for (mesh, setting), (fake,), real in zip(settings, fakes, reals, strict=True):
            differing += not print_row(mesh, setting, fake, real)
    print(f"\n{differing} differ; {time.perf_counter() - began:.0f} s")
    return int(differing > 0)


def print_row(
    mesh: dict[str, int], setting: dict[str, str], fake: dict[str, Any], real: list[dict[str, Any]]
) -> bool:
    """Print a row, and return whether what must be equal is."""
    equal = [all(rank[name] == fake[name] for rank in real) for name in ("parts", "collectives")]
    equal.append(all(rank["flops"] == fake["flops"] for rank in real))
    peaks = [rank["profiler"][0] for rank in real]
    mean = sum(peaks) / len(peaks)
    with_gloo = sum(rank["profiler"][1] for rank in real) / len(real)
    cells = [
        title_of(mesh, setting),
        *("equal" if same else "differ" for same in equal),
        f"{fake['peak'] / mean:.4f}",
        f"{min(peaks) / mean:.3f} … {max(peaks) / mean:.3f}",
        f"{fake['tracker'] / mean:.4f}" if "tracker" in fake else "",
        f"{fake['peak'] / with_gloo:.3f}",
    ]
    print("| " + " | ".join(cells) + " |", flush=True)
    if not all(equal):
        print("  fake", {name: fake[name] for name in ("parts", "collectives", "flops")})
        print("  real", [{name: rank[name] for name in fake if name in rank} for rank in real[:1]])
    return all(equal)


if __name__ == "__main__":
    sys.exit(main())
