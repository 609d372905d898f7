"""Eight ranks made from the trace of one: shifted, stretched, with clocks of their own.

Between collectives each rank works as long as the recorded one did, times its own factor; a
collective ends on all ranks at once, as long after the last one's arrival as the recorded one took,
times its own factor.
"""

import gzip
import json

import numpy as np

_GPU = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime")


def recorded(path):
    """Return the recorded file without what plays no part: operators, arrows, marks."""
    whole = json.loads(gzip.decompress(path.read_bytes()))
    kept = [one for one in whole["traceEvents"] if one.get("cat") in _GPU]
    return {**whole, "traceEvents": kept}


def collectives(events):
    """Return begin and end of the collectives' kernels, in order."""
    found = [one for one in events if one["cat"] == "kernel" and "nccl" in one["name"].lower()]
    found.sort(key=lambda one: one["ts"])
    return [(float(one["ts"]), float(one["ts"]) + float(one["dur"])) for one in found]


def write_ranks(whole, folder, *, factors, clocks, slow):
    """Write a file for each rank; `slow` is the factor of the transfer of each call by number.

    Return for each rank the µs that it arrived after the middle one of the others as the last one,
    and the transfers in µs.
    """
    calls = collectives(whole["traceEvents"])
    ranks = len(factors)
    knots = [min(float(one["ts"]) for one in whole["traceEvents"])]
    times = np.full((ranks, 1), knots[0])
    late, transfers = np.zeros(ranks), []
    for number, (begin, end) in enumerate(calls):
        arrived = times[:, -1] + np.asarray(factors) * (begin - knots[-1])
        transfer = (end - begin) * slow.get(number, 1.0)
        together = np.full(ranks, arrived.max() + transfer)
        knots += [begin, end]
        times = np.column_stack([times, arrived, together])
        late[np.argmax(arrived)] += arrived.max() - np.median(np.sort(arrived)[:-1])
        transfers.append(transfer)
    last = max(float(one["ts"]) + float(one["dur"]) for one in whole["traceEvents"])
    rest = np.asarray(factors) * (last - knots[-1])
    knots.append(last)
    times = np.column_stack([times, times[:, -1] + rest])
    for rank in range(ranks):
        _write(whole, folder, rank, ranks, knots, times[rank] + clocks[rank])
    return late, transfers


def _write(whole, folder, rank, ranks, knots, times):
    def warped(event):
        begin, end = np.interp([event["ts"], event["ts"] + event["dur"]], knots, times)
        return {**event, "ts": round(float(begin), 3), "dur": round(float(end - begin), 3)}

    distributed = {**whole["distributedInfo"], "rank": rank, "world_size": ranks}
    events = [
        warped({**one, "ts": float(one["ts"]), "dur": float(one["dur"])})
        for one in whole["traceEvents"]
    ]
    text = json.dumps({**whole, "distributedInfo": distributed, "traceEvents": events})
    (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(text.encode(), 1))
