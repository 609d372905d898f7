"""The compilation probe: what torch.compile did while a model ran, without a change to it.

Dynamo's own counters are read before and after, and each graph is looked at as it is handed to the
backend, where its operators still know their layers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from torchgauge.analyze.timeline.compared_layers import KernelCall, identity, kernel_calls
from torchgauge.measure.work import internals
from torchgauge.records.timeline.compilation import Compilation, CompiledKernel
from torchgauge.targets.hygiene import module_of

Operator = tuple[str, str | None]  # its name, and its layer's; None: not known


# Nodes of the compiled graph that compute nothing.
_VIEW = re.compile(
    r"(_?(unsafe_)?view|reshape|permute|t|transpose|expand|squeeze|unsqueeze|alias|detach)(_\d+)?"
)


class KernelSite(NamedTuple):
    """A kernel's call in generated code, and the layers it runs for; None: not known."""

    code: ModuleType
    call: KernelCall
    layers: tuple[str, ...] | None
    backward: bool


@dataclasses.dataclass(frozen=True)
class _Counts:
    """Dynamo's counters of this process at one moment; `last` is when its last work began."""

    graphs: int = 0
    breaks: Counter[str] = dataclasses.field(default_factory=Counter)
    seconds: float = 0.0
    last: float = 0.0


class Watch:
    """What was compiled since it was made."""

    def __init__(self, model: Callable[..., Any]) -> None:
        owner = module_of(model)
        self._modules = dict(() if owner is None else owner.named_modules())
        self._paths = {str(id(module)): plain_path(path) for path, module in self._modules.items()}
        self._before = _read()
        self._codes = len(internals.generated_code())
        # Of each graph its operators by the name of their node, and the code made of it.
        self.graphs: list[tuple[dict[str, Operator], list[ModuleType]]] = []
        self._sources: dict[str, dict[str, Any]] = {}  # Inductor's tables by the code's key

    def result(self) -> Compilation | None:
        """Return what was compiled; None for a model of which nothing is compiled."""
        now = _read()
        graphs = now.graphs - self._before.graphs
        compiled = [path for path, module in self._modules.items() if internals.is_compiled(module)]
        if not graphs and now.breaks == self._before.breaks:
            below = tuple(plain_path(path) for path in self._below(compiled))
            return Compilation(layers=below) if compiled else None
        layers = {layer: None for nodes, _ in self.graphs for _, layer in nodes.values() if layer}
        return Compilation(
            graphs=graphs,
            graph_breaks=dict(now.breaks - self._before.breaks),
            recompiles=dict(_recompiles(self._before.last)),
            compile_time=max(now.seconds - self._before.seconds, 0.0),
            kernels=tuple(dict.fromkeys(map(_kernel, self.sites()))),
            layers=tuple(layers),
        )

    @contextlib.contextmanager
    def look(self, graph: torch.fx.Graph, owner: object) -> Iterator[None]:
        """Note a graph's operators with their layers, and the code made of it in the block.

        `owner` is the module whose method is compiled: what is in no module below is its own.
        """
        own = self._paths.get(str(id(owner)))
        nodes = {node.name: (_operator(node), self._layer(node, own)) for node in graph.nodes}
        before = len(internals.generated_code())
        with internals.kernel_sources(self._keep_sources):
            yield
        self.graphs.append((nodes, internals.generated_code()[before:]))

    def sites(self) -> Iterator[KernelSite]:
        """Yield the calls of kernels in the code that was generated since it was made."""
        graph_of = {id(code): nodes for nodes, codes in self.graphs for code in codes}
        numbered: dict[int, dict[str, Operator]] = {}
        for code in internals.generated_code()[self._codes :]:
            text = _source(code)
            number = identity(text)
            nodes = graph_of.get(id(code), {})
            if number is not None:
                # The backward pass is compiled later, under the number of its forward pass.
                nodes = numbered.setdefault(number[0], nodes)
            sources = self._sources.get(str(getattr(code, "key", "")), {})
            backward = number is not None and number[1] == "backward"
            for call in kernel_calls(text, lambda name: hasattr(torch.ops.aten, name)):
                yield KernelSite(code, call, _layers(call, nodes, sources), backward)

    def _keep_sources(self, key: str, table: str | None) -> None:
        self._sources[key] = json.loads(table or "{}")

    def _layer(self, node: torch.fx.Node, own: str | None) -> str | None:
        """Return the innermost layer; the stack's keys are the modules' identities."""
        stack = list(node.meta.get("nn_module_stack", ()))
        return self._paths.get(str(stack[-1]).partition("@")[0]) if stack else own

    def _below(self, compiled: list[str]) -> Iterator[str]:
        for path in self._modules:
            if any(
                path.startswith(f"{compiled_path}." if compiled_path else "")
                for compiled_path in compiled
            ):
                yield path


@contextlib.contextmanager
def watching(model: Callable[..., Any]) -> Iterator[Watch]:
    """Watch what is compiled until the block ends; nothing is attached to the model."""
    watch = Watch(model)
    with internals.graphs_seen(watch.look):
        yield watch


def _read() -> _Counts:
    dynamo = internals.dynamo()
    if dynamo is None:
        return _Counts()
    breaks: Counter[str] = Counter()
    for reason, count in dynamo.counters.get("graph_break", {}).items():
        breaks[break_sentence(reason)] += count
    return _Counts(
        graphs=dynamo.counters.get("stats", {}).get("unique_graphs", 0),
        breaks=breaks,
        seconds=dynamo.calculate_time_spent()["total_wall_time"],
        last=max(
            (metrics.start_time or 0.0 for metrics in dynamo.get_compilation_metrics()), default=0.0
        ),
    )


def _recompiles(since: float) -> Counter[str]:
    """Count the compilations of code that had been compiled, by why that did not serve."""
    dynamo = internals.dynamo()
    compilations = () if dynamo is None else dynamo.get_compilation_metrics()
    return Counter(
        " ".join(compilation.recompile_reason.partition(": ")[2].split())
        for compilation in compilations
        if compilation.recompile_reason and (compilation.start_time or 0.0) > since
    )


def break_sentence(reason: str) -> str:
    """Return what broke and why, without hints and context."""
    lines = [line.strip() for line in reason.strip().splitlines()]
    explanations = [line for line in lines[1:] if line.startswith("Explanation: ")]
    return ": ".join([*lines[:1], *(line.removeprefix("Explanation: ") for line in explanations)])


def _operator(node: torch.fx.Node) -> str:
    target = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def _kernel(site: KernelSite) -> CompiledKernel:
    layers = tuple(filter(None, site.layers or ()))
    return CompiledKernel(name=site.call.name, operators=site.call.operators, layers=layers)


def _layers(
    call: KernelCall, nodes: dict[str, Operator], sources: dict[str, Any]
) -> tuple[str, ...] | None:
    """Return the layers of the nodes that a kernel is made of, or of operators that are there once.

    Inductor's table of sources has them exactly, but also the views that come with inputs. What the
    code names beside a call may have come with its inputs too.
    """
    traced = sources.get("postToPre", {})
    made_of = sources.get("cppCodeToPost", {}).get(call.handle, ())
    computing = [node for node in made_of if not _VIEW.fullmatch(node)] or made_of
    sought = [name for node in computing for name in traced.get(node, ())] or call.nodes
    layers = [nodes[name][1] for name in sought if name in nodes]
    if not sought:
        layers = list(_layers_of_operators(call, nodes))
    known_layers = dict.fromkeys(layer for layer in layers if layer is not None)
    return tuple(known_layers) if known_layers else None


def _layers_of_operators(call: KernelCall, nodes: dict[str, Operator]) -> Iterator[str | None]:
    for operator in call.operators:
        name = operator.removeprefix("aten.").removeprefix("native_").strip("_")
        matching_layers = [
            layer for node_operator, layer in nodes.values() if node_operator.strip("_") == name
        ]
        if len(matching_layers) == 1:
            yield matching_layers[0]


def _source(code: ModuleType) -> str:
    with contextlib.suppress(OSError, TypeError):
        return Path(code.__file__ or "").read_text()
    return ""


def plain_path(path: str) -> str:
    """Return a layer's name without what torch.compile puts before those inside."""
    return ".".join(part for part in path.split(".") if part != "_orig_mod")
