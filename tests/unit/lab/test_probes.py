"""Asking a part whether it is ready."""

import asyncio

import pytest

from lab.node.parts import HttpProbe, SocketProbe
from lab.node.probes import answers


async def _ask(answer: bytes) -> bool:
    async def respond(reader, writer):
        assert (await reader.readline()).startswith(b"GET /healthz HTTP/1.")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        return await answers(HttpProbe(server.sockets[0].getsockname()[1], "/healthz"))


@pytest.mark.parametrize(
    ("answer", "ready"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nok", True),
        (b"HTTP/1.1 500 Internal Server Error\r\n\r\n[-]etcd failed", False),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", False),
        (b"", False),
        (b"SSH-2.0-OpenSSH\r\n", False),
    ],
)
def test_only_a_200_is_ready(answer, ready):
    assert asyncio.run(_ask(answer)) is ready


def test_nobody_on_the_port_is_not_ready():
    assert asyncio.run(answers(HttpProbe(1, "/healthz"))) is False


def test_plain_text_on_a_tls_port_is_not_ready():
    async def ask():
        async def respond(_, writer):
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
            return await answers(HttpProbe(server.sockets[0].getsockname()[1], "/healthz", tls=True))

    assert asyncio.run(ask()) is False


def test_a_socket_is_ready_when_someone_listens_on_it(tmp_path):
    async def ask():
        path = tmp_path / "x.sock"
        before = await answers(SocketProbe(path))
        served = asyncio.Event()

        async def respond(_, writer):
            writer.close()
            await writer.wait_closed()
            served.set()

        async with await asyncio.start_unix_server(respond, path):
            after = await answers(SocketProbe(path))
            await served.wait()
        return before, after

    assert asyncio.run(ask()) == (False, True)


def test_a_part_without_a_probe_is_ready_as_soon_as_it_runs():
    assert asyncio.run(answers(None)) is True
