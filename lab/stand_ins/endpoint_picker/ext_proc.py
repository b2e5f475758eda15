"""How Envoy's external processing stream maps onto the director.

Envoy sends headers and trailers, and both bodies FULL_DUPLEX_STREAMED. One gRPC stream is one HTTP exchange. The
request's headers are answered only when its whole body is here, because the body decides on the route; then the body
goes back in pieces. The response is passed through piece by piece as it comes.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping

import grpc
from envoy.config.core.v3 import base_pb2  # ty: ignore[import-not-found] - in the image, not in the project's environment
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb  # ty: ignore[import-not-found] - as above
from envoy.type.v3 import http_status_pb2  # ty: ignore[import-not-found] - as above
from google.protobuf.json_format import ParseDict

from lab.stand_ins.endpoint_picker.director import DESTINATION_HEADER, Director, Exchange, RefusalError
from lab.stand_ins.endpoint_picker.health import EXT_PROC_SERVICE

_PIECE_BYTES = 62_000  # a body goes back in pieces below Envoy's 64 KiB, as from the real picker
_METADATA_NAMESPACE = "envoy.lb"
_OVERWRITE = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


class ExternalProcessor:
    """Serves `envoy.service.ext_proc.v3.ExternalProcessor`."""

    def __init__(self, director: Director, clock: Callable[[], float]) -> None:
        self._director, self._clock = director, clock

    def handler(self) -> grpc.GenericRpcHandler:
        """For a `grpc.aio` server."""
        process = grpc.stream_stream_rpc_method_handler(
            self.process,
            request_deserializer=pb.ProcessingRequest.FromString,
            response_serializer=pb.ProcessingResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(EXT_PROC_SERVICE, {"Process": process})

    async def process(
        self, requests: AsyncIterator[pb.ProcessingRequest], _context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.ProcessingResponse]:
        """One exchange. Whatever ends the stream, the client's departure included, releases what the request held."""
        stream = _Stream(self._director, self._clock)
        try:
            async for message in requests:
                for answer in stream.answers(message):
                    yield answer
        except RefusalError as refusal:
            yield _refused(refusal)
        finally:
            stream.close()


class _Stream:
    """One HTTP exchange: a message of Envoy's in, messages for Envoy out."""

    def __init__(self, director: Director, clock: Callable[[], float]) -> None:
        self._director, self._clock = director, clock
        self._arrived = clock()
        self._headers: Mapping[str, str] = {}
        self._body = bytearray()
        self._exchange: Exchange | None = None
        self._by_kind: dict[str | None, Callable[[pb.ProcessingRequest], Iterable[pb.ProcessingResponse]]] = {
            "request_headers": self._request_headers,
            "request_body": self._request_body,
            "request_trailers": self._request_trailers,
            "response_headers": self._response_headers,
            "response_body": self._response_body,
            "response_trailers": self._response_trailers,
        }

    def answers(self, message: pb.ProcessingRequest) -> Iterable[pb.ProcessingResponse]:
        """What to send back for `message`, in order.

        Raises:
            RefusalError: The request cannot be routed.
        """
        return self._by_kind[message.WhichOneof("request")](message)

    def close(self) -> None:
        """The stream is over."""
        if self._exchange:
            self._director.end(self._exchange)

    def _request_headers(self, message: pb.ProcessingRequest) -> Iterable[pb.ProcessingResponse]:
        self._headers = _headers(message.request_headers.headers)
        if message.request_headers.end_of_stream:
            self._exchange = self._director.admit_without_body()
            yield _routed(self._exchange)

    def _request_body(self, message: pb.ProcessingRequest) -> Iterable[pb.ProcessingResponse]:
        self._body += message.request_body.body
        if message.request_body.end_of_stream:
            yield from self._admit(ends=True)

    def _request_trailers(self, _message: pb.ProcessingRequest) -> Iterable[pb.ProcessingResponse]:
        if self._exchange is None:
            yield from self._admit(ends=False)
        yield pb.ProcessingResponse(request_trailers=pb.TrailersResponse())

    def _admit(self, *, ends: bool) -> Iterable[pb.ProcessingResponse]:
        """The request is complete: its headers' answer, then its body; trailers end it unless `ends`."""
        body, self._body = bytes(self._body), bytearray()
        self._exchange = self._director.admit(self._headers, body, self._arrived)
        yield _routed(self._exchange)
        starts = range(0, max(len(body), 1), _PIECE_BYTES)
        for start in starts:
            piece = _streamed(body[start : start + _PIECE_BYTES], ends=ends and start == starts[-1])
            yield pb.ProcessingResponse(request_body=pb.BodyResponse(response=piece))

    def _response_headers(self, message: pb.ProcessingRequest) -> Iterable[pb.ProcessingResponse]:
        if self._exchange:
            headers = _headers(message.response_headers.headers)
            status, content_type = int(headers.get(":status", "0")), headers.get("content-type", "")
            self._director.response_headers(self._exchange, status, content_type)
            if message.response_headers.end_of_stream:
                self._director.end(self._exchange)
        yield pb.ProcessingResponse(response_headers=pb.HeadersResponse(response=pb.CommonResponse()))

    def _response_body(self, message: pb.ProcessingRequest) -> Iterable[pb.ProcessingResponse]:
        part = message.response_body
        if self._exchange:
            if part.body:
                self._director.response_chunk(self._exchange)
            if part.end_of_stream:
                self._director.end(self._exchange)
        piece = _streamed(part.body, ends=part.end_of_stream)
        return (pb.ProcessingResponse(response_body=pb.BodyResponse(response=piece)),)

    def _response_trailers(self, _message: pb.ProcessingRequest) -> Iterable[pb.ProcessingResponse]:
        self.close()
        yield pb.ProcessingResponse(response_trailers=pb.TrailersResponse())


def _headers(headers: base_pb2.HeaderMap) -> Mapping[str, str]:
    """By lower-case name; Envoy fills `raw_value`, older ones `value`."""
    return {h.key.lower(): h.raw_value.decode("latin-1") if h.raw_value else h.value for h in headers.headers}


def _routed(exchange: Exchange) -> pb.ProcessingResponse:
    """The answer to the request's headers."""
    options = [
        base_pb2.HeaderValueOption(
            header=base_pb2.HeaderValue(key=name, raw_value=value.encode()), append_action=_OVERWRITE
        )
        for name, value in exchange.set_headers.items()
    ]
    mutation = pb.HeaderMutation(set_headers=options, remove_headers=list(exchange.remove_headers))
    response = pb.ProcessingResponse(
        request_headers=pb.HeadersResponse(response=pb.CommonResponse(header_mutation=mutation, clear_route_cache=True))
    )
    ParseDict({_METADATA_NAMESPACE: {DESTINATION_HEADER: exchange.destination}}, response.dynamic_metadata)
    return response


def _streamed(body: bytes, *, ends: bool) -> pb.CommonResponse:
    piece = pb.StreamedBodyResponse(body=body, end_of_stream=ends)
    return pb.CommonResponse(body_mutation=pb.BodyMutation(streamed_response=piece))


def _refused(refusal: RefusalError) -> pb.ProcessingResponse:
    """Answer the client from here."""
    return pb.ProcessingResponse(
        immediate_response=pb.ImmediateResponse(
            status=http_status_pb2.HttpStatus(code=refusal.status), body=f"inference error: {refusal}".encode()
        )
    )
