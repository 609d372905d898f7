"""Inference by gRPC (KServe v2, Triton), whose messages tritonclient has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any

from torchgauge.errors import InputError
from torchgauge.imports import required
from torchgauge.records.serving.requests import Fate
from torchgauge.serving.client.address import Address
from torchgauge.serving.client.connection import Sender
from torchgauge.serving.client.request_head import RequestHead

# Field of the contents that has the values of a type, as KServe's protocol names them.
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
_REMEDY = (
    'Give the body as for HTTP: {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", '
    '"data": [1.0, 2.0]}]}.'
)


class GrpcClient:
    """Calls `ModelInfer` of the model that the path names: grpc://HOST:PORT/MODEL[/VERSION]."""

    def __init__(
        self, address: Address, items: Sequence[bytes], head: RequestHead, sender: Sender
    ) -> None:
        messages = "tritonclient.grpc.service_pb2"
        grpc, service_pb2, service_pb2_grpc = (
            required(module, "grpc", "Sending by gRPC", "tritonclient[grpc]")
            for module in ("grpc", messages, f"{messages}_grpc")
        )
        self.opened = 0
        self._grpc, self._sender = grpc, sender
        model, version = _model(address)
        self._requests = [infer_request(service_pb2, body, model, version) for body in items]
        host = address.listening_host()
        place = f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"
        options: list[tuple[str, Any]] = [("grpc.enable_http_proxy", 0)]
        if address.secure:
            options.append(("grpc.ssl_target_name_override", address.host))
            credentials = grpc.ssl_channel_credentials()
            self._channel = grpc.aio.secure_channel(place, credentials, options=options)
        else:
            self._channel = grpc.aio.insecure_channel(place, options=options)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._metadata = tuple((name.lower(), value) for name, value in head.given_headers)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def exchange(self, row: int, ready: float) -> None:
        """Send a request that could be sent since `ready`, read its answer, report its fate."""
        columns = self._sender.columns
        request = self._requests[columns.item[row]]
        now = monotonic()
        columns.lateness.append(now - ready)
        columns.sent[row] = now  # when it was handed to the library
        try:
            await self._stub.ModelInfer(request, metadata=self._metadata)
        except self._grpc.aio.AioRpcError as error:
            self._sender.ended(row, self._fate(error), monotonic(), error.details() or "")
        else:
            self.opened = 1  # a channel has one connection
            columns.first[row] = columns.last[row] = monotonic()
            self._sender.ended(row, "done", columns.last[row])

    def _fate(self, error: Any) -> Fate:
        """Return what a status says of a request: a server that answers with one has answered."""
        codes = self._grpc.StatusCode
        details = (error.details() or "").lower()
        if error.code() == codes.UNAVAILABLE:
            if "ssl" in details or "tls" in details or "handshake" in details:
                return "tls"
            return "refused" if "connect" in details and not self.opened else "reset"
        if error.code() == codes.DEADLINE_EXCEEDED:
            return "timeout"
        return "status"


def _model(address: Address) -> tuple[str, str]:
    """Return the model and its version: of "/MODEL", "/MODEL/2", "/v2/models/MODEL/infer"."""
    parts = [part for part in address.target.partition("?")[0].split("/") if part]
    if parts[:2] == ["v2", "models"]:
        parts = [part for part in parts[2:] if part not in ("versions", "infer")]
    if not 1 <= len(parts) <= 2:
        raise InputError(
            "The address has no model.",
            id="address-invalid",
            cause="A gRPC request has the name of one.",
            remedy="Write it like grpc://127.0.0.1:8001/MODEL.",
        )
    return parts[0], parts[1] if len(parts) == 2 else ""


def infer_request(messages: Any, body: bytes, model: str, version: str = "") -> Any:
    """Return the message that a body of KServe's HTTP protocol stands for.

    Raises InputError `body-invalid`.
    """
    try:
        request = json.loads(body)
        inputs = [_input(messages, tensor) for tensor in request["inputs"]]
        outputs = [
            messages.ModelInferRequest.InferRequestedOutputTensor(name=tensor["name"])
            for tensor in request.get("outputs", ())
        ]
        return messages.ModelInferRequest(
            model_name=model, model_version=version, id=str(request.get("id", "")), inputs=inputs,
            outputs=outputs,
        )  # fmt: skip
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise InputError(
            "No gRPC request can be made of the body.",
            id="body-invalid",
            cause=f"{type(error).__name__}: {error}"[:200],
            remedy=_REMEDY,
        ) from error


def _input(messages: Any, tensor: dict[str, Any]) -> Any:
    kind = tensor["datatype"]
    values = list(_flat(tensor["data"]))
    if kind == "BYTES":
        values = [value.encode() if isinstance(value, str) else value for value in values]
    contents = messages.InferTensorContents(**{_CONTENTS[kind]: values})
    return messages.ModelInferRequest.InferInputTensor(
        name=tensor["name"], datatype=kind, shape=tensor["shape"], contents=contents
    )


def _flat(values: Any) -> Iterator[Any]:
    """Yield the values of nested lists."""
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value
