"""How one of our hosts is served to the engine that started it: stubs, port, refusals, and when it ends.

The engine starts a host as a child, reads the port it listens on as the first line of its output, and interrupts it in
the end.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import sys
import threading
from concurrent import futures
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

import grpc
from google.protobuf import empty_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

NOTHING = empty_pb2.Empty()  # ty: ignore[missing-attribute]  protobuf's own messages have no stubs

_MESSAGE_BYTES = 400 * 1024 * 1024  # what the engine and the SDK agree on; a state may be large
_WORKERS = 16  # a running program or policy pack holds one each, every other call is short
_PARENT_POLL_SECONDS = 1.0


def run_host(module: str) -> None:
    """Run `main(arguments)` of `module` as a host process; the launchers that `install` writes call this.

    The stubs live in `pulumi.runtime.proto`. Importing them the usual way runs the whole SDK first, which no host uses:
    0.6 s against 0.2 s on two cores, on the way of every preview. So the packages above them are put in place empty.
    """
    for name in ("pulumi", "pulumi.runtime"):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.submodule_search_locations is None:
            raise ModuleNotFoundError(f"{name} is not installed for {sys.executable}")
        package = ModuleType(name)
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules[name] = package
    importlib.import_module(module).main(sys.argv[1:])


def serve(register: Callable[[grpc.Server], None], close: Callable[[], None] = lambda: None) -> None:
    """Serve what `register` adds to a server, on a free port of loopback, until interrupted or orphaned.

    Args:
        register: adds servicers to the server that it is given.
        close: ends what the servicers still run; called before the server stops.
    """
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    options = [("grpc.max_receive_message_length", _MESSAGE_BYTES), ("grpc.max_send_message_length", _MESSAGE_BYTES)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=_WORKERS), options=options)
    register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    parent = os.getppid()
    print(port, flush=True)
    # A killed engine sends no signal, and its orphan must not go on.
    while not stop.wait(_PARENT_POLL_SECONDS) and os.getppid() == parent:
        pass
    close()
    server.stop(grace=0.5).wait()


def refuse(context: grpc.ServicerContext, code: grpc.StatusCode, message: str) -> NoReturn:
    """End a call with an error; `abort` itself is not declared never to return."""
    context.abort(code, message)
    raise AssertionError(message)
