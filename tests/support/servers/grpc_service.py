"""A KServe v2 server by gRPC; it prints its port and ends with its standard input."""

import argparse
import asyncio
import sys

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc


class Inference(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers by the model: "sum" adds up its values, "slow" after 0.2 s; others are not there."""

    async def ModelInfer(self, request, context):
        """Return the sum of the values of the first input."""
        if request.model_name == "slow":
            await asyncio.sleep(0.2)
        elif request.model_name != "sum":
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no model {request.model_name}")
        metadata = dict(context.invocation_metadata())
        if "authorization" in metadata and metadata["authorization"] != "Bearer secret":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")
        values = request.inputs[0].contents.fp32_contents
        if list(request.inputs[0].shape) != [1, len(values)]:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the shape does not fit")
        total = service_pb2.InferTensorContents(fp32_contents=[sum(values)])
        output = service_pb2.ModelInferResponse.InferOutputTensor(
            name="total", datatype="FP32", shape=[1], contents=total
        )
        return service_pb2.ModelInferResponse(model_name=request.model_name, outputs=[output])


async def main(options):
    """Serve until the standard input is closed, or the life is over."""
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Inference(), server)
    port = server.add_insecure_port(f"{options.host}:0")
    await server.start()
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), over.set)
    loop.call_later(options.life, over.set)
    print(port, flush=True)
    await over.wait()
    await server.stop(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--life", type=float, default=120.0)
    asyncio.run(main(parser.parse_args()))
