"""How one reaches the lab from the machine: connections to loopback ports, carried into the lab's network namespace.

A socket belongs to the network namespace in which it was made. `lab up` makes the listening sockets on the machine's
loopback and hands them down; this process lives in the lab, accepts on them and connects where it is. So there is one
process and no rule, no second half outside, and the ports are free the moment the lab ends.
"""

import argparse
import asyncio
import socket

_CHUNK = 256 * 1024


def targets(words: list[str]) -> dict[int, tuple[str, int]]:
    """`fd=host:port` words → file descriptor of a listening socket → address inside the lab."""
    parsed = {}
    for word in words:
        descriptor, _, address = word.partition("=")
        host, _, port = address.rpartition(":")
        parsed[int(descriptor)] = (host, int(port))
    return parsed


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry one direction to its end, then say so to the other side: a half-closed connection stays half open."""
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def relay(
    outside: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    inside: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Join two connections until both directions have ended; when one side breaks, both end."""
    try:
        async with asyncio.TaskGroup() as directions:
            directions.create_task(_pump(outside[0], inside[1]))
            directions.create_task(_pump(inside[0], outside[1]))
    except* OSError:
        pass
    finally:
        for _, writer in (outside, inside):
            writer.close()


async def serve(listener: socket.socket, host: str, port: int) -> None:
    """Accept on `listener` for ever; a target that refuses closes the connection."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inside = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await relay((reader, writer), inside)

    server = await asyncio.start_server(accept, sock=listener)
    await server.serve_forever()


async def _main(words: list[str]) -> None:
    await asyncio.gather(
        *(serve(socket.socket(fileno=descriptor), host, port) for descriptor, (host, port) in targets(words).items())
    )


def main() -> None:
    """Serve the listening sockets named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="+", metavar="FD=HOST:PORT")
    asyncio.run(_main(parser.parse_args().target))


if __name__ == "__main__":
    main()
