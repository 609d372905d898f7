"""A file of rocprofv3 (`--output-format json`), made by its format: one kernel, one copy."""


def handle(number):
    return {"handle": number}


def record(begin, end, number, **more):
    common = {"start_timestamp": begin, "end_timestamp": end, "size": 64, "thread_id": 77}
    return common | {"correlation_id": {"internal": number, "external": 0}} | more


ROCPROF = {
    "rocprofiler-sdk-tool": [
        {
            "metadata": {"pid": 12, "init_time": 0, "fini_time": 10},
            "agents": [
                {"id": handle(100), "type": 1, "name": "EPYC", "product_name": "EPYC"},
                {"id": handle(200), "type": 2, "name": "gfx942", "product_name": "MI300X",
                 "logical_node_type_id": 0},
                {"id": handle(300), "type": 2, "name": "gfx942", "product_name": "MI300X",
                 "logical_node_type_id": 1},
            ],
            "strings": {
                "buffer_records": [
                    {"kind": "NONE", "operations": []},
                    {"kind": "HIP_RUNTIME_API", "operations": ["none", "hipLaunchKernel",
                                                                "hipDeviceSynchronize"]},
                    {"kind": "MEMORY_COPY", "operations": ["NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
                ],
                "marker_api": [{"key": 9, "value": "forward"}],
            },
            "kernel_symbols": [{"kernel_id": 4, "kernel_name": "gemm.kd",
                                "formatted_kernel_name": "gemm(float*)"}],
            "buffer_records": {
                "hip_api": [
                    record(1_001_000, 1_003_000, 1, kind=1, operation=1),
                    record(1_004_000, 1_005_000, 2, kind=1, operation=1),
                    record(1_006_000, 1_060_000, 3, kind=1, operation=2),
                ],
                "marker_api": [record(1_000_000, 1_070_000, 9, kind=3, operation=1)],
                "kernel_dispatch": [
                    record(1_020_000, 1_050_123, 1, kind=4, operation=0, dispatch_info={
                        "agent_id": handle(300), "queue_id": handle(2), "kernel_id": 4,
                        "workgroup_size": {"x": 256, "y": 1, "z": 1},
                        "grid_size": {"x": 1000, "y": 2, "z": 1}, "group_segment_size": 512,
                    }),
                ],
                "memory_copy": [
                    record(1_010_000, 1_015_000, 2, kind=2, operation=1, bytes=4096,
                           src_agent_id=handle(100), dst_agent_id=handle(300)),
                ],
            },
        }
    ]
}  # fmt: skip
