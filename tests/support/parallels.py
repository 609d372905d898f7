"""Records of one rank of a job on many devices, made by hand."""

from tests.support import exported_records

from torchgauge.records.parallel.parallel import (
    CollectiveRow,
    Link,
    LinkBound,
    MeshDim,
    Parallel,
    RankKind,
    StepBound,
    WorkRow,
)
from torchgauge.records.parallel.rank_memory import (
    AliveBytes,
    Alternative,
    DeviceFit,
    RankMemory,
    SmallestMesh,
    StepMoment,
    StreamPool,
)
from torchgauge.records.record import MeasurementWarning

GIB = 1 << 30


def memory(layer="layers.0"):
    """40 GiB alive at the peak, 44 reserved."""
    return RankMemory(
        resting={"parameters": 8 * GIB, "optimizer": 16 * GIB},
        largest={
            "parameters": 8 * GIB,
            "optimizer": 16 * GIB,
            "gradients": 8 * GIB,
            "activations": 12 * GIB,
            "gathered": 2 * GIB,
        },
        peak=40 * GIB,
        peak_phase="backward",
        phases={"forward": 38 * GIB, "backward": 40 * GIB, "optimizer": 33 * GIB},
        at_peak=(
            AliveBytes(part="parameters", layer=layer, bytes=8 * GIB),
            AliveBytes(part="optimizer", layer=layer, bytes=16 * GIB),
            AliveBytes(part="gradients", layer=layer, bytes=4 * GIB),
            AliveBytes(part="activations", layer=layer, bytes=10 * GIB),
            AliveBytes(part="activations", layer="", bytes=1 * GIB),
            AliveBytes(part="gathered", layer=layer, bytes=1 * GIB),
        ),
        pools=(
            StreamPool(stream="compute", peak=41 * GIB),
            StreamPool(stream="all_gather", peak=2 * GIB),
            StreamPool(stream="reduce_scatter", peak=1 * GIB),
        ),
        reserved=44 * GIB,
        timeline=tuple(
            StepMoment(changes=changes, phase=phase, parts=tuple(n * GIB for n in parts))
            for changes, phase, parts in (
                (0, "forward", (8, 0, 16, 0, 0, 0, 0, 0)),
                (40, "forward", (8, 0, 16, 12, 2, 0, 0, 0)),
                (50, "backward", (8, 4, 16, 11, 1, 0, 0, 0)),
                (90, "optimizer", (8, 8, 16, 0, 0, 0, 0, 1)),
            )
        ),
    )


def rank(name="rank", layer="layers.0", device="NVIDIA H100 80GB HBM3", text=""):
    """128 ranks alike, which fit with 30 GB to spare."""
    return RankKind(
        name=name,
        rank=0,
        ranks=128,
        parameters=2 * GIB,
        memory=memory(layer),
        work=(
            WorkRow(
                phase="forward",
                operator="aten::mm" + text,
                dtype="bfloat16",
                calls=10,
                matmul_flops=10**15,
                bytes=10**9,
            ),
            WorkRow(
                phase="recompute",
                operator="aten::mm" + text,
                dtype="bfloat16",
                calls=9,
                matmul_flops=10**14,
                bytes=10**8,
            ),
            WorkRow(
                phase="optimizer",
                operator="aten::_foreach_add_",
                dtype="float32",
                calls=1,
                vector_flops=10**9,
                bytes=10**9,
            ),
        ),
        collectives=(
            CollectiveRow(
                kind="all_gather",
                group="fsdp" + text,
                ranks=128,
                phase="forward",
                dtype="bfloat16",
                calls=33,
                bytes=16 * GIB,
                exposure="overlappable",
            ),
            CollectiveRow(
                kind="all_reduce",
                group="",
                ranks=8,
                phase="backward",
                dtype="float32",
                calls=1,
                bytes=4,
                exposure="exposed",
            ),
        ),
        fits=(
            DeviceFit(
                device=device,
                memory=80 * 10**9,
                verdict="fits",
                margin=80 * 10**9 - 44 * GIB,
                needed_margin=8 * 10**9,
                source="datasheet" + text,
            ),
        ),
        bounds=(
            StepBound(
                device=device,
                seconds=1.4,
                compute=1.2,
                exposed=0.2,
                overlappable=0.5,
                links=(
                    LinkBound(
                        group="fsdp" + text,
                        ranks=128,
                        machines=128,
                        link=Link(
                            name="InfiniBand" + text,
                            bytes_per_second=5e10,
                            source="datasheet" + text,
                        ),
                        moved=1e10,
                        exposed_seconds=0.2,
                        overlappable_seconds=0.5,
                    ),
                ),
                sources={"bfloat16": "datasheet" + text},
            ),
        ),
    )


def parallel(text=exported_records.ODD):
    """A rank of 128 with every part of the record, named by texts that break careless writers."""
    return Parallel(
        target=exported_records.target(training=True),
        mesh=(MeshDim(name="fsdp" + text, size=128), MeshDim(name="tp", size=8)),
        sharding="fsdp, tp",
        optimizer="AdamW" + text,
        precision="bf16",
        checkpoint="op",
        parameters=8 * 10**9,
        kinds=(rank(layer="layers.0" + text, text=text, device="H100" + text),),
        smallest=SmallestMesh(
            device="H100" + text,
            dim="fsdp" + text,
            size=16,
            verdicts={8: "may fit", 16: "fits"},
            reserved={8: 70 * GIB, 16: 44 * GIB},
        ),
        alternatives=(
            Alternative(
                name="checkpoint every layer" + text,
                option="--checkpoint full" + text,
                peak=30 * GIB,
                reserved=33 * GIB,
                executed_flops=13 * 10**14,
                sent=9e9,
                verdicts={"H100" + text: "fits"},
            ),
            Alternative(name="half the batch", option="--batch 1", failed="The batch is 1." + text),
        ),
        seconds=12.0,
        torch="2.13.0",
        warnings=(MeasurementWarning(id="w", message="m" + text),),
    )
