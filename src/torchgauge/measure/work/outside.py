"""Work that no torch operator shows: NumPy's, and what is done with tensors that leave torch.

While a call is counted, the ways by which a tensor's values or its memory leave are watched. What
NumPy does with them is counted where its dispatch shows it; for the rest the layer that let the
tensor go has unknown work. Of no interest are single numbers (`item()`), lists of integers, what
torch's own code does, what custom operators do, which have a formula or are unknown as a whole, and
addresses that are only compared.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import mmap
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch

from torchgauge.errors import MeasurementError
from torchgauge.formulas.operand import Work
from torchgauge.imports import modules_with_files
from torchgauge.measure.arrays.members import objects
from torchgauge.measure.arrays.tracked import (
    ArrayObserver,
    arrays,
    counting,
    creates,
    current,
    leaves,
    root,
    tracked,
)
from torchgauge.measure.work.counting import Counter
from torchgauge.measure.work.internals import TORCH_FOLDER, is_torchs, never_compiled
from torchgauge.measure.work.layer_calls import LayerCall
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.work.cost import OUTSIDE, Phase
from torchgauge.signals import replaced, restoring
from torchgauge.targets.hygiene.kept import listed
from torchgauge.targets.inputs.inputs import Inputs

# Arrays are followed from these, where they can be.
_TO_NUMPY = ("numpy", "__array__")
# What torch's own code calls for another process, and never for itself.
_TO_PROCESSES = ("_share_fd_cpu_", "_share_filename_cpu_", "_share_cuda_")
_EXITS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (
        torch.Tensor,
        (*_TO_NUMPY, "tolist", "data_ptr", "__dlpack__", "__cuda_array_interface__",
         "__reduce_ex__"),
    ),
    (torch.UntypedStorage, ("data_ptr", "tolist", *_TO_PROCESSES)),
    (torch.TypedStorage, ("data_ptr", "tolist")),
    (torch.utils.dlpack, ("to_dlpack",)),
    (torch, ("to_dlpack",)),
)  # fmt: skip
_ENTRIES = ("from_numpy", "as_tensor", "asarray", "tensor", "frombuffer")
_FROMBUFFER = torch.frombuffer
_TORCH = Path(TORCH_FOLDER).resolve()  # an environment may be a link, or its files


class Address(int):
    """An address of memory that knows whether it was hashed, or compared with another one."""

    compared = False

    def __hash__(self) -> int:
        self.compared = True
        return int.__hash__(self)

    def __eq__(self, other: object) -> bool:
        for address in (self, other):
            if isinstance(address, Address):
                address.compared |= not isinstance(other, int) or int(other) != 0
        return int.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


class _Exit(NamedTuple):
    """Where a tensor left: by what, in which layer call and phase, at which line."""

    name: str
    call: LayerCall
    phase: Phase
    line: str


class OutsideWork(ArrayObserver):
    """Watches what leaves torch during a call that is counted, and adds it to the counter.

    Without `follows` arrays of NumPy are left alone: a model may not take those that are observed.
    `followed` says whether any was handed out.
    """

    follows_numbers = False

    def __init__(self, counter: Counter, model: Any, inputs: Inputs, *, follows: bool) -> None:
        super().__init__(lambda: arrays([*objects(model, functions=True), *_values(inputs)]))
        self._counter = counter
        self._follows = follows
        self._on_meta = any(tensor.is_meta for _, tensor in inputs.tensors())
        self._exits: list[_Exit] = []
        self._addresses: list[tuple[Address, _Exit]] = []
        self._unused: dict[int, tuple[Any, _Exit]] = {}  # arrays that nothing was seen to use
        self.followed = False

    @restoring
    def watching(self) -> Iterator[None]:
        """Watch what this call's threads do until the block ends."""
        exits = [(owner, name) for owner, names in _EXITS for name in names]
        patches = [(owner, name, self._exit(owner, name)) for owner, name in exits]
        patches += [(torch, name, self._entry(getattr(torch, name))) for name in _ENTRIES]
        with (
            replaced(patches),
            counting(self) if self._follows else contextlib.nullcontext(),
            self._watching_extensions(),
        ):
            yield
        for address, departure in self._addresses:
            if not address.compared:
                self._add_unknown(departure)
        for _, departure in self._unused.values():
            self._add_unknown(departure)

    def add(self, operator: str, work: Work | None, dtype: Any, moved: int) -> None:
        """Add what NumPy did; `work` None is unknown."""
        self.followed = True
        if work is None:
            self.unknown(operator)
        elif self._counter.counts_here():
            call, phase = self._counter.place()
            self._counter.add_work(call, (operator, phase, str(dtype)), work, moved)

    def unknown(self, description: str) -> None:
        """Note work outside of torch that is not known."""
        self.followed = True
        if self._counter.counts_here():
            self._add_unknown(_Exit(description, *self._counter.place(), ""))

    def check(self, array: Any) -> None:
        """Note an array whose origin was not seen; one that is followed is used."""
        if isinstance(array, np.ndarray):
            self._unused.pop(id(root(array)), None)
        super().check(array)

    def followed_inputs(self, inputs: Inputs) -> Inputs:
        """Return the inputs with arrays of NumPy in the form that is followed."""
        if not self._follows:
            return inputs
        kwargs = {name: _followed(value) for name, value in inputs.kwargs.items()}
        return Inputs(tuple(map(_followed, inputs.args)), kwargs)

    def returned(self, outputs: Any, inputs: Inputs, own: Iterable[torch.Tensor]) -> bool:
        """Look at what the call returned; whether anything is neither given nor the model's own."""
        for array in arrays(outputs):
            self.check(array)
        known_ids = {id(value) for value in (*leaves(_values(inputs)), *own)}
        fresh = (leaf for leaf in leaves(outputs) if not isinstance(leaf, bool | int | str))
        return any(leaf is not None and id(leaf) not in known_ids for leaf in fresh)

    def warnings(self) -> Iterator[MeasurementWarning]:
        """Yield the warning that names the layers that tensors left."""
        if not self._exits:
            return
        layers = dict.fromkeys(exit_.call.path or exit_.call.name for exit_ in self._exits)
        exits = dict.fromkeys(
            f"{exit_.name} at {exit_.line}" if exit_.line else exit_.name for exit_ in self._exits
        )
        yield MeasurementWarning(
            id="work-outside-torch",
            message=f"Not all work of {listed(list(layers))} is counted: it is done outside of "
            "torch.",
            probe="cost",
            cause=f"It was given to other code, or came from there, by {listed(list(exits))}.",
            remedy="Totals are lower bounds. Made a custom operator (torch.library.custom_op), it "
            "is counted by the formula that @torchgauge.flop_formula gives it.",
        )

    @contextlib.contextmanager
    def _watching_extensions(self) -> Iterator[None]:
        """Note calls of functions of C++ extensions: they take tensors without asking in Python."""
        names = {Path(file).name.partition(".")[0] for file in filter(_takes_tensors, _loaded())}
        before = sys.getprofile()

        def watch(frame: FrameType, event: str, function: Any) -> None:
            package, _, name = str(getattr(function, "__module__", "")).rpartition(".")
            if event == "c_call" and name in names and not f"{package}.".startswith("torch."):
                departure = self._watched(f"{name}.{function.__name__}", frame)
                if departure is not None and self._on_meta:
                    raise _without_memory(departure)
                if departure is not None:
                    self._add_unknown(departure)
            if before is not None:
                before(frame, event, function)  # type: ignore[arg-type]

        if names:
            sys.setprofile(watch)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _add_unknown(self, departure: _Exit) -> None:
        name, call, phase, _ = departure
        self._counter.add_work(call, (f"{OUTSIDE}: {name}", phase, ""), None, 0)
        self._exits.append(departure)

    def _watched(self, name: str, frame: FrameType) -> _Exit | None:
        """Return where a tensor is about to leave, None where that does not count."""
        file, _, method = frame.f_code.co_filename, *name.split(".")
        internal = is_torchs(frame) and method not in _TO_PROCESSES
        counts = self._counter.counts_here() or self._counter.threads.owns_current_beside_first()
        if internal or file == copy.__file__ or not counts:
            return None
        return _Exit(name, *self._counter.place(), f"{file}:{frame.f_lineno}")

    def _exit(self, owner: Any, name: str) -> Any:
        original = getattr(owner, name)
        attribute = isinstance(original, property)
        read = original.fget if attribute else original
        label = f"{owner.__name__.rpartition('.')[2]}.{name}"

        @functools.wraps(read, assigned=("__doc__",))
        def leave(value: Any, *args: Any, **kwargs: Any) -> Any:
            departure = self._watched(label, sys._getframe(1))  # noqa: SLF001
            if departure is None:
                return read(value, *args, **kwargs)
            if name == "data_ptr":
                return self._address(read(value), value, departure)
            result = read(value, *args, **kwargs)
            if name in _TO_NUMPY:
                return self._array(result, departure)
            if name != "tolist" or _numbers(value):
                self._add_unknown(departure)
            return result

        never_compiled(leave, below=True)
        return property(leave) if attribute else leave

    def _address(self, address: int, owner: Any, departure: _Exit) -> Address:
        if owner.device.type == "meta":
            raise _without_memory(departure)
        watched = Address(address)
        self._addresses.append((watched, departure))
        return watched

    def _array(self, array: Any, departure: _Exit) -> Any:
        if current() is self and departure.name.endswith(".numpy"):
            self.followed = True
            if array.size > 1 and array.dtype.kind in "fc":
                self._unused[id(array)] = array, departure
            return tracked(array)
        if array.size > 1 and not creates():
            self._add_unknown(departure)
        return array

    def _entry(self, make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def enter(*args: Any, **kwargs: Any) -> Any:
            if self._counter.counts_here():
                for array in arrays(args[:1]):
                    self.check(array)
                if make is _FROMBUFFER:
                    self.unknown("torch.frombuffer")
            return make(*args, **kwargs)

        never_compiled(enter, below=True)
        return enter


def _without_memory(departure: _Exit) -> MeasurementError:
    return MeasurementError(
        "The model's forward asks for the address of a tensor without values.",
        id="address-of-meta",
        cause=f"{departure.name} at {departure.line}: there is no memory at it.",
        remedy="Give the model and its inputs on the CPU (--device cpu).",
    )


def _loaded() -> set[str]:
    """Return the files that this process runs code of: one may be in no list of modules."""
    files = {file for _, _, file in modules_with_files()}
    with contextlib.suppress(OSError):  # of Linux alone
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        files.update(line.split(maxsplit=5)[-1] for line in maps.splitlines())
    return files


@functools.cache
def _takes_tensors(file: str) -> bool:
    """Whether a file is an extension that is linked to torch's Python, and not torch's own."""
    if not file.endswith((".so", ".pyd")) or Path(file).resolve().is_relative_to(_TORCH):
        return False
    with (
        contextlib.suppress(OSError, ValueError),
        Path(file).open("rb") as extension,
        mmap.mmap(extension.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return content.find(b"torch_python") >= 0
    return False


def _values(inputs: Inputs) -> list[Any]:
    return [*inputs.args, *inputs.kwargs.values()]


def _followed(value: Any) -> Any:
    return tracked(value) if type(value) is np.ndarray else value


def _numbers(value: Any) -> bool:
    """Whether a list of a tensor's values has several real or complex numbers."""
    if not isinstance(value, torch.Tensor):
        return True
    return value.numel() > 1 and (value.is_floating_point() or value.is_complex())
