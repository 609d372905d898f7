"""What an expert would say first of recordings of common shapes: one case each, times in µs."""

import pytest
from tests.support.kineto_events import DEVICE, copy, kernel, launch, launched, mark, op, read, span

from torchgauge.analyze.trace.rank_trace import rank_trace

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
SGEMM = "ampere_sgemm_128x64_tn"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
CAST = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const"
    "::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >"
)
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>"
FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
    "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)"
)
A100 = DEVICE | {"name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000}
LOADER = "enumerate(DataLoader)#_{}DataLoaderIter.__next__"


def queued(*work, begin=100.0, at=0.0, **args):
    """Kernels of these names and durations, back to back, launched long before."""
    parts = []
    for number, (name, duration) in enumerate(work):
        parts += launched(name, begin, duration, at=at + number, **args)
        begin += duration + 0.5
    return parts


def steady(count=20, duration=50.0, **args):
    return queued(*[(GEMM, duration)] * count, **args)


def below(name, start, duration, kernel_name, length, at_device, shapes=None, **args):
    """An operator with one kernel."""
    more = {} if shapes is None else {"Input Dims": shapes, "Input type": ["float"] * len(shapes)}
    return [
        op(name, start, duration, **more),
        *launched(kernel_name, at_device, length, at=start + 0.2, **args),
    ]


def steps(count, length, make):
    """Marked steps of the profiler, `length` apart; `make` has the events of one that begins."""
    return [
        event
        for number in range(count)
        for event in [
            mark(f"ProfilerStep#{number}", number * length, length - 1),
            *make(number * length),
        ]
    ]


def loading(name, wait=800.0):
    def step(begin):
        return [
            mark(name, begin + 1, wait),
            *queued((GEMM, 90), (GEMM, 90), begin=begin + wait + 10, at=begin + wait + 4),
        ]

    return steps(4, wait + 210, step)


def loading_beside_work(begin=0.0):
    return [mark(LOADER.format("MultiProcessing"), 40, 700), *queued(*[(GEMM, 95)] * 10, at=1)]


def waiting(operator, call, length=300.0):
    """The host waits in every step, and has launched nothing more meanwhile."""

    def step(begin):
        around = [op(operator, begin + 20, length - 30)] if operator else []
        return [
            *queued((GEMM, 200), begin=begin + 10, at=begin + 4),
            *around,
            launch(int(begin) + 9, begin + 21, 189, name=call),
            *queued((GEMM, 60), begin=begin + length, at=begin + length - 8),
        ]

    return steps(5, length + 80, step)


def waiting_at_the_end():
    return [*steady(), launch(5, 30, 1090, name="cudaDeviceSynchronize")]


def calling(name, length=400.0, cat="cuda_runtime"):
    """A call that takes the host long in each step, while the device has nothing to do."""

    def step(begin):
        return [
            span(cat, name, begin + 5, length, **({"correlation": 0} if "cuda" in cat else {})),
            *queued((GEMM, 150), begin=begin + length + 20, at=begin + length + 10),
        ]

    return steps(4, length + 180, step)


def first_launches():
    parts, begin = [], 0.0
    for number in range(8):
        name = f"{GEMM}_{number}"
        parts += [launch(number + 1, begin, 900), kernel(name, begin + 905, 60, number + 1)]
        begin += 970
    return parts


def looped_optimizer(names=("aten::mul_", "aten::add_", "aten::addcdiv_"), parameters=30):
    parts = [*queued((GEMM, 300), at=1), mark("Optimizer.step#AdamW.step", 390, 30 * 30 + 20)]
    begin = 400.0
    for _ in range(parameters):
        for name in names:
            parts += below(name, begin, 8, ADD, 2, begin + 5)
            begin += 10
    return parts


def launch_bound(graph=False):
    args = {"graph node id": 7} if graph else {}
    return [
        event
        for number in range(80)
        for event in launched(ADD, 12 * number + 8, 2, at=12 * number, **args)
    ]


def a_long_pause_in_python():
    return [*steady(10), *steady(10, begin=3000, at=2900)]


def casts():
    parts = []
    for number in range(10):
        begin = 100 * number
        parts += [
            op("aten::to", begin, 9),
            op("aten::_to_copy", begin + 0.1, 8.5),
            *below("aten::copy_", begin + 1, 4, CAST, 40, 200 + begin),
            *below("aten::mm", begin + 20, 9, GEMM, 55, 242 + begin),
        ]
    return parts


def chain(count=30):
    return [
        event
        for number in range(count)
        for event in below(
            "aten::add", 9 * number, 6, ADD, 40, 400 + 40.5 * number, [[1024, 1024], [1024, 1024]]
        )
    ]


def written_attention():
    parts, scores = [], [16, 512, 512]
    for number in range(6):
        begin, on_device = 60 * number, 500 + 300 * number
        parts += [
            *below("aten::bmm", begin, 9, GEMM, 60, on_device, [[16, 512, 64], [16, 64, 512]]),
            *below("aten::_softmax", begin + 10, 9, SOFTMAX, 120, on_device + 61, [scores, [], []]),
            *below("aten::bmm", begin + 20, 9, GEMM, 60, on_device + 182, [scores, [16, 512, 64]]),
        ]
    return parts


def plain_attention():
    parts = []
    for number in range(6):
        begin, on_device = 60 * number, 500 + 300 * number
        parts += [
            op("aten::scaled_dot_product_attention", begin, 50),
            op("aten::_scaled_dot_product_attention_math", begin + 0.5, 49),
            *below("aten::bmm", begin + 1, 9, GEMM, 60, on_device),
            *below("aten::_softmax", begin + 11, 9, SOFTMAX, 120, on_device + 61),
            *below("aten::bmm", begin + 21, 9, GEMM, 60, on_device + 182),
        ]
    return parts


def conversions():
    convolution = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nchw_tilesize128"
    parts = []
    for number in range(10):
        begin, on_device = 20 * number, 400 + 200 * number
        parts += [
            op("aten::cudnn_convolution", begin, 15),
            *launched("void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float>",
                      on_device, 60, at=begin + 1),
            *launched(convolution, on_device + 61, 110, at=begin + 2),
        ]  # fmt: skip
    return parts


def small_copies():
    return [
        event
        for number in range(100)
        for event in (
            op("aten::to", 20 * number, 15),
            launch(number + 1, 20 * number + 1, 12, name="cudaMemcpyAsync"),
            copy("Memcpy HtoD (Pinned -> Device)", 20 * number + 8, 1, number + 1, size=256),
        )
    ]


def exposed_copies():
    return [
        event
        for number in range(5)
        for event in (
            launch(number + 1, number, 1, name="cudaMemcpyAsync"),
            copy("Memcpy HtoD (Pinned -> Device)", 100 + 400 * number, 200, number + 1, 10**7),
            *launched(GEMM, 300 + 400 * number, 200, at=20 + number),
        )
    ]


def pageable_copies():
    return [
        event
        for number in range(5)
        for event in (
            launch(number + 1, 100 + 400 * number, 220, name="cudaMemcpyAsync"),
            copy("Memcpy HtoD (Pageable -> Device)", 110 + 400 * number, 200, number + 1, 10**7),
            *launched(GEMM, 330 + 400 * number, 180, at=322 + 400 * number),
        )
    ]


def all_reduce(begin, duration, at, elements=10**7):
    args = {
        "Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements,
        "dtype": "Float", "Group size": 8,
    }  # fmt: skip
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
    return launched(name, begin, duration, at=at, stream=20, **args)


def a_single_row():
    return [
        event
        for number in range(20)
        for event in below(
            "aten::addmm", 9 * number, 6,
            "void gemv2T_kernel_val<int, int, __nv_bfloat16, float, 128, 16, 4, 4, false>",
            50, 300 + 51 * number, [[4096], [1, 4096], [4096, 4096]],
        )
    ]  # fmt: skip


def waits_of_streams():
    """The second stream's work was launched long before, and begins late."""
    return [
        *queued((GEMM, 100), at=1),
        *launched(GEMM, 500, 100, at=3, stream=8),
        *launched(GEMM, 900, 100, at=4),
    ]


SHAPE = {"grid": [432, 1, 1], "block": [256, 1, 1], "registers per thread": 64, "shared memory": 0}
CASES = {
    "loader in the process": ("input-pipeline", lambda: loading(LOADER.format("SingleProcess"))),
    "loader's workers": ("input-pipeline", lambda: loading(LOADER.format("MultiProcessing"))),
    "Lightning's loader": (
        "input-pipeline",
        lambda: loading("[pl][profile][_TrainingEpochLoop].train_dataloader_next"),
    ),
    "loader beside work": ("hottest-kernels", loading_beside_work),
    "item in each step": (
        "synchronisation",
        lambda: waiting("aten::item", "cudaStreamSynchronize"),
    ),
    "sizes from values": (
        "synchronisation",
        lambda: waiting("aten::nonzero", "cudaStreamSynchronize"),
    ),
    "synchronize in each step": ("synchronisation", lambda: waiting("", "cudaDeviceSynchronize")),
    "synchronize at the end": ("hottest-kernels", waiting_at_the_end),
    "cudaMalloc": ("device-allocation", lambda: calling("cudaMalloc")),
    "cudaFree": ("device-allocation", lambda: calling("cudaFree")),
    "pinned buffers": ("device-allocation", lambda: calling("cudaHostAlloc")),
    "hipMalloc": ("device-allocation", lambda: calling("hipMalloc")),
    "modules": ("first-launches", lambda: calling("cuModuleLoadData", cat="cuda_driver")),
    "libraries": ("first-launches", lambda: calling("cuLibraryLoadData", cat="cuda_driver")),
    "first launches": ("first-launches", first_launches),
    "collections": (
        "garbage-collection",
        lambda: calling("<built-in function collect>", cat="python_function"),
    ),
    "compilation": (
        "compilation",
        lambda: calling("entire_frame_compile (dynamo_timed)", cat="cpu_op"),
    ),
    "tuning": (
        "compilation",
        lambda: calling("triton/runtime/autotuner.py(120): _bench", cat="python_function"),
    ),
    "optimizer's loop": ("optimizer-loop", looped_optimizer),
    "launches": ("launch-bound", launch_bound),
    "a long pause": ("idle-host", a_long_pause_in_python),
    "steady products": ("hottest-kernels", steady),
    "fp32 on an A100": ("fp32-products", lambda: queued(*[(SGEMM, 50)] * 20)),
    "tf32 on an A100": (
        "hottest-kernels",
        lambda: queued(*[("ampere_sgemm_tf32_128x64_tn".replace("sgemm_", "s1688gemm_"), 50)] * 20),
    ),
    "fp64": ("float64-products", lambda: queued(*[("ampere_dgemm_64x64_nn", 50)] * 20)),
    "casts": ("casts", casts),
    "a chain of operators": ("unfused-elementwise", chain),
    "attention written out": ("eager-attention", written_attention),
    "attention's plain form": ("math-attention", plain_attention),
    "layouts": ("layout-conversions", conversions),
    "align1": (
        "unaligned-products",
        lambda: queued(
            *[("cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_32x6_nn_align1", 50)] * 20
        ),
    ),
    "one request at a time": ("single-row-products", a_single_row),
    "small copies": ("small-copies", small_copies),
    "copies before work": ("exposed-copies", exposed_copies),
    "pageable copies": ("pageable-copies", pageable_copies),
    "fills": ("fills", lambda: queued(*[(FILL, 40), (GEMM, 60)] * 10)),
    "all-reduce after the step": (
        "exposed-communication",
        lambda: [*steady(10), *all_reduce(650, 300, 30)],
    ),
    "all-reduce beside the step": (
        "hottest-kernels",
        lambda: [*steady(20), *all_reduce(200, 300, 30)],
    ),
    "launched before": (
        "launched-before",
        lambda: [*steady(5, begin=350), *[kernel(GEMM, 50 * n, 49, 900 + n) for n in range(7)]],
    ),
    "waits of streams": ("idle-device", waits_of_streams),
}


@pytest.mark.parametrize("name", CASES)
def test_the_first_finding_is_an_experts(name):
    expected, make = CASES[name]
    record, _ = rank_trace(read(*make(), devices=(A100,)), "made.json")
    ids = [finding.id for finding in record.findings]
    assert (ids or [None])[0] == expected, [(f.id, f.title, f.worth) for f in record.findings]


@pytest.mark.parametrize("name", CASES)
def test_no_finding_is_worth_more_than_its_time(name):
    record, _ = rank_trace(read(*CASES[name][1](), devices=(A100,)), "made.json")
    for finding in record.findings:
        assert finding.worth is None or finding.worth <= finding.time
        assert finding.time is None or finding.time <= record.window * (1 + 1e-9)
