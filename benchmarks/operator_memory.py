"""What torch's operators hold inside, by formula beside a hook on the allocator.

Every operator that torch's own tests call runs forward and backward on their samples, enlarged, in
a process in which `allocation_peak.c` counts what torch's allocator gives. A call is listed where
its peak is not what it returns and what `formulas/workspaces.py` says, by more than 1 % and 4 KiB,
and the formulas do not name the operator unknown either.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training_memory import hook

SHARE, LEAST = 0.01, 4096
SECONDS, SAMPLES = 5, 60  # of each operator
SIZES = ("S", "M")  # what the samples' shapes are made of, in torch's tests


def database(size: int) -> list[Any]:
    """Return torch's test operators; 0 leaves the size of their samples, else it is that."""
    # Of this torch uses no more than the name of a class.
    sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))  # type: ignore[arg-type]
    from torch.testing._internal.common_methods_invocations import op_db

    for name, module in list(sys.modules.items()):
        for factor, variable in enumerate(SIZES, 1):
            has = name.startswith("torch.testing._internal") and hasattr(module, variable)
            if size and has:
                setattr(module, variable, factor * size)
    return list(op_db)


class Calls:
    """Compares every call of an operator, as a dispatch mode."""

    def __init__(self, threads: int) -> None:
        self.hook: Any = ctypes.CDLL(None)
        for function in ("allocation_live", "allocation_peak"):
            getattr(self.hook, function).restype = ctypes.c_size_t
        self.threads = threads
        self.calls = Counter[str]()
        self.unknown = Counter[str]()
        self.off = dict[str, list[float]]()

    def mode(self) -> Any:
        """Return a mode under which calls are compared."""
        from torch.utils._python_dispatch import TorchDispatchMode

        calls = self

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                return calls.compare(func, args, kwargs or {})

        return Mode()  # type: ignore[no-untyped-call]

    def compare(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call an operator and note where it held more or less than is known."""
        from torchgauge.formulas import workspaces
        from torchgauge.formulas.operand import tensors

        before = self.hook.allocation_live()
        self.hook.allocation_peak_reset()
        outputs = func(*args, **kwargs)
        real = self.hook.allocation_peak() - before
        name = func._schema.name
        if any("strided" not in str(x.layout) for x in tensors((args, kwargs, outputs))):
            return outputs
        self.calls[name] += 1
        if workspaces.is_unknown(name, args):
            self.unknown[name] += 1
            return outputs
        storages = {x.untyped_storage().data_ptr() for x in tensors((args, kwargs))}
        told, new = workspaces.sizes(name, args, outputs), 0
        for index, output in enumerate(tensors(outputs)):
            storage = output.untyped_storage()
            if storage.data_ptr() not in {0, *storages}:  # at 0 is a tensor of zeros without memory
                size = told[index] if index < len(told) else None
                new += storage.nbytes() if size is None else size
                storages.add(storage.data_ptr())
        known = new + workspaces.scratch(name, args, self.threads, outputs)
        if abs(known - real) > max(LEAST, SHARE * real):
            self.off.setdefault(name, []).append(known / max(real, 1))
        return outputs


def samples(operator: Any, dtype: Any) -> Iterator[Any]:
    """Yield an operator's samples for some seconds; those that it cannot make end them."""
    began = time.monotonic()
    try:
        made = operator.sample_inputs("cpu", dtype, requires_grad=operator.supports_autograd)
        for sample in itertools.islice(made, SAMPLES):
            if time.monotonic() - began > SECONDS:
                return
            yield sample
    except Exception as error:  # noqa: BLE001 - whatever torch's own tests raise at that size
        print(f"{operator.name}: {error}", file=sys.stderr)


def run(sample: Any, operator: Any) -> None:
    """Call an operator, and the backward pass of the sum of all that it returns."""
    import torch
    from torch.utils._pytree import tree_leaves

    outputs = operator(sample.input, *sample.args, **sample.kwargs)
    leaves = [x for x in tree_leaves(outputs) if isinstance(x, torch.Tensor) and x.requires_grad]
    if leaves:
        torch.stack([x.abs().sum().double() for x in leaves]).sum().backward()  # type: ignore[no-untyped-call]


def compared(dtype: str, size: int, threads: int, names: list[str]) -> dict[str, Any]:
    """Return the calls of operators, and how far those are off that are; the hook is preloaded."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    calls = Calls(threads)
    gc.disable()  # what it frees during a call would be missing from the call's peak
    for operator in database(size):
        if (names and operator.name not in names) or getattr(torch, dtype) not in operator.dtypes:
            continue
        gc.collect()
        for sample in samples(operator, getattr(torch, dtype)):
            try:
                run(sample, operator)  # what is allocated once, at the first call
                with calls.mode():
                    run(sample, operator)
            except Exception as error:  # noqa: BLE001 - as above
                print(f"{operator.name}: {error}", file=sys.stderr)
    return {"calls": calls.calls, "unknown": calls.unknown, "off": calls.off}


def main() -> int:
    """Print the operators that hold what no formula says; return 1 where there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="operators (default: all)")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--size", type=int, default=20, help="of samples' dimensions; 0: as tested")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        found = compared(options.dtype, options.size, options.threads, options.names)
        print(json.dumps(found))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        library = hook(Path(folder))
        if library is None:
            print("Not run: it needs Linux and a C compiler.")
            return 0
        done = subprocess.run(
            [sys.executable, __file__, "--child", *sys.argv[1:]],
            env=os.environ | {"LD_PRELOAD": str(library)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    off = found["off"]
    print(f"{'operator':48} {'calls':>6} {'off':>5} {'lowest':>7} {'highest':>7}")
    for name, ratios in sorted(off.items()):
        calls = found["calls"][name]
        print(f"{name:48} {calls:6} {len(ratios):5} {min(ratios):7.3f} {max(ratios):7.3f}")
    counts = f"{len(found['calls'])} operators, {len(found['unknown'])} unknown"
    print(f"\n{options.dtype}, size {options.size}: {counts}, {len(off)} neither known nor unknown")
    return int(bool(off))


if __name__ == "__main__":
    sys.exit(main())
