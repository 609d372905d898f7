"""torch's private names, where no public one serves: each is looked up when it is first used.

A name that this torch lacks raises MeasurementError `torch-unsupported` there, so that it costs the
figure which needs it, and no other.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from torchgauge.version import torch_unsupported

# Our name, the module and torch's own name in it, the first release of 2.3, 2.5, 2.7, 2.9, 2.11 and
# 2.13 that has it, and what it is for. A module alone is one whose names are read or replaced.
_TABLE = """
# Recordings
RecordFunction torch._C._profiler:_RecordFunctionFast 2.3 spans of layers, steps and marks
RecordingConfig torch._C._profiler:_ExperimentalConfig 2.3 recordings of all threads, with overloads
profiler_kind torch._C._autograd:_profiler_type 2.3 which of torch's recorders it is
set_profiler_on torch.autograd.profiler:_set_is_profiler_enabled 2.3 the end of a recording that is lost
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
DispatchMode torch.utils._python_dispatch:TorchDispatchMode 2.3 every call of an operator
dispatch_modes torch.utils._python_dispatch:_get_current_dispatch_mode_stack 2.3 who else sees them
without_modes torch.utils._python_dispatch:_disable_current_modes 2.3 calls that no mode sees
pop_mode torch.utils._python_dispatch:_pop_mode 2.3 a mode that ends before those entered after it
push_mode torch.utils._python_dispatch:_push_mode 2.3 those that stay
no_dispatch torch._C:_disabled_torch_dispatch_impl 2.3 tensors that are plain to operators
graph_task torch._C:_current_graph_task_id 2.3 whether a backward pass runs
current_node torch._C:_current_autograd_node 2.3 which node of its graph runs
sequence_number torch.autograd:_get_sequence_nr 2.3 the layer that a node is of
backward torch.autograd.graph:_engine_run_backward 2.3 frames that run a backward pass
saved_tensor_hooks torch._C._autograd:_top_saved_tensors_default_hooks 2.9 what is kept for it
EarlyStop torch.utils.checkpoint:_StopRecomputationError 2.3 the end of a layer that runs again
HigherOrderOperator torch._ops:HigherOrderOperator 2.3 control flow and other calls of functions
DispatchKey torch._C:DispatchKey 2.3 the operators that an operator is made of
compiler_settings torch._inductor.config: 2.3 random numbers as eager code draws them
CompiledGraph torch._inductor.output_code:CompiledFxGraph 2.7 the operators in a generated kernel
functional_variants torch:_VF 2.3 the dropout that torch.nn.functional calls
OpOverload torch._ops:OpOverload 2.3 calls of operators, of one overload
has_kernel torch._C:_dispatch_has_kernel 2.3 whether an operator is there
has_kernel_for torch._C:_dispatch_has_kernel_for_dispatch_key 2.3 what it is made of
all_true torch:ops.aten._is_all_true.default 2.3 checks of values, where there are none
tree_map torch.utils._pytree:tree_map 2.3 a call's arguments with other tensors in them
tree_leaves torch.utils._pytree:tree_leaves 2.3 the tensors in a call's arguments
pytree_nodes torch.utils._pytree:SUPPORTED_NODES 2.3 containers that the user has registered
# Jobs on many devices
checkpoint_wrapper torch.distributed.algorithms._checkpoint.checkpoint_wrapper:checkpoint_wrapper 2.3 checkpointed layers
reduce_scatter torch:ops._c10d_functional.reduce_scatter_tensor.default 2.3 what such layers keep
process_group torch.distributed.distributed_c10d:_resolve_process_group 2.3 the ranks of a collective
is_wrapper_class torch.utils._python_dispatch:is_traceable_wrapper_subclass_type 2.5 sharded tensors
FakeStore torch.testing._internal.distributed.fake_pg:FakeStore 2.3 ranks of which one is here
DTensorSpec torch.distributed.tensor._dtensor_spec:DTensorSpec 2.5 attention on shards of a sequence
TensorMeta torch.distributed.tensor._dtensor_spec:TensorMeta 2.5 the whole of such a sequence
StridedShard torch.distributed.tensor.placement_types:_StridedShard 2.5 parameters sharded twice
ring_attention torch.distributed.tensor.experimental._context_parallel._attention: 2.11 context parallelism
attention torch:ops.aten._scaled_dot_product_flash_attention_for_cpu.default 2.3 attention by a ring
attention_backward torch:ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default 2.3 its gradient
grouped_product torch:ops.aten._grouped_mm.default 2.7 products of experts
grouped_shape torch._meta_registrations:_create_grouped_mm_output_tensor 2.9 what such a product gives
fake_shapes torch._subclasses.fake_impls:op_implementations_dict 2.3 shapes that torch cannot say
sharded_parameter torch.distributed.fsdp._fully_shard._fsdp_param: 2.7 one chunk of 1,024 in place of all
sharding torch.distributed.tensor._sharding_prop: 2.5 how shardings go on, asked once for each kind
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
        import torch

        raise torch_unsupported(
            f"torch {torch.__version__} has no {place.rstrip(':').replace(':', '.')}.",
            f"It is a private name, needed for this: {purpose}.",
        ) from error
    globals()[name] = value
    return value
