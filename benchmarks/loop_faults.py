"""Whether the verdict of `torchgauge run` names the fault of a real two-rank job, and its rank.

    python benchmarks/loop_faults.py faults --repeats 1
    python benchmarks/loop_faults.py clean --repeats 40
    python benchmarks/loop_faults.py slow --repeats 40

Two processes of `loop_faults_job.py` train by DistributedDataParallel over gloo on 127.0.0.1, with
one thread each. `faults` are twelve, each half as long as a step; `clean` has none: a verdict that
names a fault or a rank is false, but for one that says that other programs had the cores; `slow`
makes one rank's steps 10 % longer, in five kinds of places.
"""

import argparse
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torchgauge as tg
from torchgauge.records.timeline.loop import LoopVerdict

JOB = Path(__file__).with_name("loop_faults_job.py")
WORLD = 2
LIMIT = 240  # seconds of a job
FAULTY_FROM = 12  # the job's own calibration comes before
# The fault, the rank that has it (-1: all).
FAULTS = (
    ("forward", 1), ("backward", 0), ("loader", 1), ("optimizer", 0), ("host", 1), ("gc", 0),
    ("item", 1), ("forward", -1), ("backward", -1), ("loader", -1), ("gc", -1), ("item", -1),
)  # fmt: skip
SLOW = tuple(itertools.product(("forward", "backward", "loader", "optimizer", "host"), (0, 1)))
WHAT = {
    "loader": "data loading", "host": "host code", "gc": "garbage collection", "item": ".item()",
}  # fmt: skip


def run_job(command, arguments, folder):
    """Run one process a rank; `command` runs the script with its arguments."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [*command, str(JOB), *arguments],
            env={
                **os.environ, "RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "WORLD_SIZE": f"{WORLD}",
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}", "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.DEVNULL, stderr=(folder / f"{rank}.txt").open("w"),
        )
        for rank in range(WORLD)
    ]  # fmt: skip
    try:
        for process in processes:
            process.wait(LIMIT)
    finally:
        for process in processes:
            process.kill()


def verdict(fault, rank, extra, steps, records):
    """Return the verdict of a job with a fault; its records stay in the folder, if any is given."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if records is None else records
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--skip", f"{FAULTY_FROM}", "--output-dir", f"{folder}"]
        command = [sys.executable, "-m", "torchgauge", "run", *options]
        arguments = [fault, "--rank", f"{rank}", "--extra", f"{extra}", "--steps", f"{steps}"]
        run_job(command, arguments, folder)
        said = "\n".join((folder / f"{rank}.txt").read_text()[-2000:] for rank in range(WORLD))
        try:
            found = tg.load(folder).verdict
        except tg.TorchgaugeError as error:
            sys.exit(f"{error}\n{said}")
        return found or LoopVerdict(bound="unclear", title=f"No verdict.\n{said}")


def is_right(found, fault, rank):
    """Whether the verdict names the fault and the rank that has it, or none where all have it."""
    named_rank = None if rank < 0 else rank
    return found.fault and found.rank == named_rank and found.cause == WHAT.get(fault, fault)


def main():
    """Run the jobs that are asked for, and print how many verdicts are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("faults", "clean", "slow"))
    parser.add_argument(
        "--repeats", type=int, default=1, help="of all faults, or jobs of the others"
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first job")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--rows", type=Path, help="a file to which each job's row is added")
    parser.add_argument("--records", type=Path, help="a folder that keeps each job's records")
    options = parser.parse_args()
    jobs = {
        "faults": [(*fault, 0.5) for fault in FAULTS] * options.repeats,
        "clean": [("none", -1, 0.0)] * options.repeats,
        "slow": [
            (*SLOW[n % len(SLOW)], 0.1)
            for n in range(options.first, options.first + options.repeats)
        ],
    }[options.mode]
    right = 0
    for number, (fault, rank, extra) in enumerate(jobs, options.first):
        began = time.monotonic()
        kept = options.records and options.records / f"{options.mode}{number}"
        found = verdict(fault, rank, extra, options.steps, kept)
        named = found.fault and found.cause != "no core"  # which is the machine's, not the job's
        good = not named if fault == "none" else is_right(found, fault, rank)
        right += good
        row = {
            "mode": options.mode, "fault": fault, "rank": rank, "right": good,
            "rank_right": found.rank == (None if rank < 0 else rank), "title": found.title,
            "evidence": found.evidence, "seconds": round(time.monotonic() - began, 1),
        }  # fmt: skip
        print(f"{'ok   ' if good else 'WRONG'} {fault} {rank}: {found.title}", flush=True)
        if options.rows is not None:
            with options.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(f"{options.mode}: {right} of {len(jobs)} right")


if __name__ == "__main__":
    main()
