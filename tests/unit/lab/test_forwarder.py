"""Carrying connections, half-closed and broken ones too."""

import asyncio
import socket

import pytest

from lab.node import forwarder

DEADLINE = 10


def test_words_of_the_command_line_say_which_socket_goes_where():
    assert forwarder.targets(["5=127.0.0.1:6443", "6=10.243.0.2:30080"]) == {
        5: ("127.0.0.1", 6443),
        6: ("10.243.0.2", 30080),
    }


async def _through(server_side, client_side):
    """Run a server behind the forwarder and a client before it; returns what the client returned."""
    inside = await asyncio.start_server(server_side, "127.0.0.1", 0)
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    serving = asyncio.create_task(forwarder.serve(listener, *inside.sockets[0].getsockname()))
    try:
        reader, writer = await asyncio.open_connection(*address)
        result = await client_side(reader, writer)
        writer.close()
        return result
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        inside.close()


def run(server_side, client_side):
    async def limited():
        async with asyncio.timeout(DEADLINE):
            return await _through(server_side, client_side)

    return asyncio.run(limited())


def test_a_client_that_is_done_sending_still_gets_the_whole_answer():
    async def server(reader, writer):
        request = await reader.read()  # to the end: needs the half-close to arrive
        writer.write(request * 100_000)
        writer.close()

    async def client(reader, writer):
        writer.write(b"hello")
        writer.write_eof()
        return await reader.read()

    assert run(server, client) == b"hello" * 100_000


def test_the_server_learns_that_the_client_went_away():
    async def both():
        gone = asyncio.Event()

        async def server(reader, writer):
            await reader.read()
            gone.set()
            writer.close()

        async def client(_, writer):
            writer.transport.abort()
            await gone.wait()
            return gone.is_set()

        async with asyncio.timeout(DEADLINE):
            return await _through(server, client)

    assert asyncio.run(both())


@pytest.mark.filterwarnings("error")
def test_a_target_that_refuses_ends_the_connection():
    async def refused():
        closed = socket.create_server(("127.0.0.1", 0))
        target = closed.getsockname()
        closed.close()
        listener = socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(forwarder.serve(listener, *target))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        data = await reader.read()
        writer.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        return data

    assert asyncio.run(asyncio.wait_for(refused(), DEADLINE)) == b""
