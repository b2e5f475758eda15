"""Whether a part answers: one short question over HTTP, TLS or a unix socket."""

import asyncio
import ssl

from lab.node.parts import HttpProbe, Probe, SocketProbe

_TIMEOUT_SECONDS = 2.0


def _blind_context() -> ssl.SSLContext:
    """TLS without trust: it is our own loopback, where controller manager and scheduler sign for themselves."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


_BLIND = _blind_context()


async def answers(probe: Probe | None) -> bool:
    """Whether the part behind `probe` is ready; no probe = yes."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            match probe:
                case None:
                    return True
                case SocketProbe(path):
                    _, writer = await asyncio.open_unix_connection(path)
                    writer.close()
                    return True
                case HttpProbe():
                    return await _status(probe) == 200  # noqa: PLR2004  HTTP's OK
    except (OSError, TimeoutError):
        return False


async def _status(probe: HttpProbe) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", probe.port, ssl=_BLIND if probe.tls else None)
    try:
        writer.write(f"GET {probe.path} HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        line = await reader.readline()
    finally:
        writer.close()
    words = line.split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
