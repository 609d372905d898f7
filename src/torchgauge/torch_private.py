"""torch's private names, where no public one serves: each is looked up when it is first used.

A name that this torch lacks raises MeasurementError `torch-unsupported` there, so that it costs the
figure which needs it, and no other.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch

from torchgauge.version import torch_unsupported

# Our name, the module and torch's own name in it, the first release of 2.3, 2.5, 2.7, 2.9, 2.11 and
# 2.13 that has it, and what it is for. A module alone is one whose names are read or replaced.
_TABLE = """
# Recordings
RecordFunction torch._C._profiler:_RecordFunctionFast 2.3 spans of layers, steps and marks
# Loops
module_call torch.nn:Module._call_impl 2.3 which of a thread's frames are calls of modules
loader_fetch torch.utils.data._utils.fetch: 2.3 when a loader's worker has a batch's samples
loader_pinning torch.utils.data._utils.pin_memory: 2.3 how long batches wait to be pinned
loader_worker torch.utils.data._utils.worker: 2.3 what a loader's worker does with its time
LoaderIterator torch.utils.data.dataloader:_BaseDataLoaderIter 2.3 waits for a loader
WorkersIterator torch.utils.data.dataloader:_MultiProcessingDataLoaderIter 2.3 waits for its workers
autograd_engine torch.autograd:Variable._execution_engine 2.3 when a backward pass waits for others
OptimizedModule torch._dynamo.eval_frame:OptimizedModule 2.3 whether torch.compile made a module
# Memory
lazy_cuda_call torch.cuda:_lazy_call 2.3 allocators are watched once CUDA is in use, and not before
record_cuda_memory torch.cuda.memory:_record_memory_history 2.3 stacks of what was alive on a GPU
cuda_snapshot torch.cuda.memory:_snapshot 2.3 what was alive on a GPU whose memory ran out
watch_cuda_memory torch._C:_cuda_attach_out_of_memory_observer 2.3 the moment at which it runs out
FakeTensor torch._subclasses.fake_tensor:FakeTensor 2.3 tensors that have no values
FakeTensorMode torch._subclasses.fake_tensor:FakeTensorMode 2.3 steps that compute nothing
unset_fake torch._subclasses.fake_tensor:unset_fake_temporarily 2.3 real tensors within such a step
active_fake_mode torch._guards:active_fake_mode 2.3 whether what is made now has values
# Work
functional_variants torch:_VF 2.3 the dropout that torch.nn.functional calls
tree_leaves torch.utils._pytree:tree_leaves 2.3 the tensors in a call's arguments
pytree_nodes torch.utils._pytree:SUPPORTED_NODES 2.3 containers that the user has registered
# Jobs on many devices
checkpoint_wrapper torch.distributed.algorithms._checkpoint.checkpoint_wrapper:checkpoint_wrapper 2.3 checkpointed layers
reduce_scatter torch:ops._c10d_functional.reduce_scatter_tensor.default 2.3 what such layers keep
process_group torch.distributed.distributed_c10d:_resolve_process_group 2.3 the ranks of a collective
# Targets
is_wrapper torch.utils._python_dispatch:is_traceable_wrapper_subclass 2.3 tensors made of tensors
unwrapped torch._C._functorch:get_unwrapped 2.3 the tensor inside of one that functorch made
is_of_functorch torch._C._functorch:is_functorch_wrapped_tensor 2.3 whether functorch made it
functorch_level torch._C._functorch:maybe_current_level 2.3 gradients that functorch turned on
print_options torch._tensor_str:PRINT_OPTS 2.3 how tensors are printed, put back after a run
joined torch._utils:_flatten_dense_tensors 2.3 copies of many tensors in one
hooks_of_all torch.nn.modules.module:_global_forward_pre_hooks 2.3 what may change any module's call
program_type torch._C:ConcreteModuleType 2.3 the attributes of a TorchScript program
graph_function torch._C:_create_function_from_graph 2.3 a part of a TorchScript program
ProgramGraph torch._C:Graph 2.3 the operators of that part
TupleType torch._C:TupleType 2.3 what that part returns
parse_schema torch._C:parse_schema 2.3 the arguments of its operators
Operator torch._ops:OperatorBase 2.3 which nodes of an exported program are operators
aoti_package torch._inductor:aoti_load_package 2.7 programs that AOTInductor compiled
# The machine
int8_product torch:_int_mm 2.3 the roof of int8, which has no other product
default_device torch.utils._device: 2.3 whether a default device is set
profiler_on torch.autograd:_profiler_enabled 2.3 whether somebody else records
# Monitors
tracing_state torch._C:_get_tracing_state 2.3 calls that are traced, not timed
frames torch._C._dynamo.eval_frame: 2.3 frames of ours that torch.compile passes over
replicate torch.nn:Module._replicate_for_data_parallel 2.3 the copies that nn.DataParallel makes
"""  # noqa: E501
NAMES = {
    name: (place, since, purpose)
    for name, place, since, purpose in (
        line.split(maxsplit=3) for line in _TABLE.split("\n") if line and line[0] != "#"
    )
}


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(name)
    place, _, purpose = NAMES[name]
    module, _, path = place.partition(":")
    try:
        owner = importlib.import_module(module)
        value = functools.reduce(getattr, filter(None, path.split(".")), owner)
    except (ImportError, AttributeError) as error:
        raise torch_unsupported(
            f"torch {torch.__version__} has no {place.rstrip(':').replace(':', '.')}.",
            f"It is a private name, needed for this: {purpose}.",
        ) from error
    globals()[name] = value
    return value
