"""gRPC health checking, on the picker's health port and (for Envoy's own check) beside ext_proc.

The messages have one field each, so they are read and written here by hand. As with the real picker every service
answers SERVING once the pool has synced; with leader election on, `liveness` does so always (this stand-in is its own
leader).
"""

from collections.abc import Callable

import grpc

EXT_PROC_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
LIVENESS = "liveness"
SERVICES = ("", "inference-extension", "readiness", LIVENESS, EXT_PROC_SERVICE)

SERVING = b"\x08\x01"  # field 1, enumeration, SERVING
NOT_SERVING = b"\x08\x02"
_SERVICE_FIELD = 0x0A  # field 1, length-delimited


class MalformedCheckError(ValueError):
    """A HealthCheckRequest that cannot be read."""


def service_of(request: bytes) -> str:
    """The service that a serialised HealthCheckRequest asks about.

    Raises:
        MalformedCheckError: It is not one.
    """
    if not request:
        return ""
    if len(request) < 2 or request[0] != _SERVICE_FIELD or request[1] != len(request) - 2:  # noqa: PLR2004 - tag, length
        raise MalformedCheckError("not a HealthCheckRequest")
    try:
        return request[2:].decode()
    except UnicodeDecodeError:
        raise MalformedCheckError("not a HealthCheckRequest") from None


class Health:
    """Whether the picker serves, by service."""

    def __init__(self, synced: Callable[[], bool], *, leader_election: bool) -> None:
        self._synced, self._leader_election = synced, leader_election
        self._leaving = False

    def leave(self) -> None:
        """From now on nothing serves: the process ends."""
        self._leaving = True

    def serving(self, service: str) -> bool:
        """Whether `service`, one of `SERVICES`, serves."""
        if self._leaving:
            return False
        return (self._leader_election and service == LIVENESS) or self._synced()

    def handler(self) -> grpc.GenericRpcHandler:
        """`grpc.health.v1.Health/Check` for a `grpc.aio` server."""

        async def check(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            try:
                service = service_of(request)
            except MalformedCheckError as error:
                return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            if service not in SERVICES:
                return await context.abort(grpc.StatusCode.NOT_FOUND, f"unknown service {service!r}")
            return SERVING if self.serving(service) else NOT_SERVING

        return grpc.method_handlers_generic_handler(
            "grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(check)}
        )
