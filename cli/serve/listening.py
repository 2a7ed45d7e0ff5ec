"""The address that a server listens on, its URL, and who can reach it."""

import errno
import socket
import stat
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from hybrid.quant.ggml.errors import UsageError, shown

# bytes of answers that the system buffers per client, in twice as much memory. Its default is megabytes: whole answers
# would go to clients that never read them.
MOST_SENT = 32 << 10
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


def listen(host: str, port: int, unix: Path | None) -> socket.socket:
    """A listening socket. UsageError: the address cannot be used."""
    try:
        if unix is not None:
            return _listen_unix(unix)
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        # Connections inherit TCP_NODELAY. asyncio sets it only if a socket names its protocol; create_server does not:
        # every answer on a kept connection would wait 40 ms for the client's delayed ACK.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_SENT)
        return listener
    except OSError as error:
        # create_server adds the address to the system's message
        why = "something listens there already" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        what = "Choose another path (--unix)." if unix is not None else "Choose another --port or --host."
        where = shown(unix) if unix is not None else _with_port(host, port)
        raise UsageError(f"{where} cannot be listened on: {why}. {what}") from None


def _listen_unix(path: Path) -> socket.socket:
    """A listening Unix socket; replaces a socket file that a killed server has left."""
    if _is_left_behind(path):
        path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def _is_left_behind(path: Path) -> bool:
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(5)
            probe.connect(str(path))
    except ConnectionRefusedError:
        return True
    except OSError:
        pass  # absent or unreadable: bind() will report it
    return False


def remove(unix: Path | None) -> None:
    """Removes the socket file after the server has ended."""
    if unix is not None:
        with suppress(OSError):
            unix.unlink(missing_ok=True)


def url(listener: socket.socket, host: str) -> str:
    """The URL for clients."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    return f"http://{_with_port(host, listener.getsockname()[1])}"


def is_local(listener: socket.socket) -> bool:
    """Whether only programs on this machine can reach the socket."""
    return listener.family == socket.AF_UNIX or ip_address(listener.getsockname()[0]).is_loopback


def own_hosts(listener: socket.socket, host: str) -> frozenset[str] | None:
    """Allowed names in Host headers of a server that only this machine can reach; None: any name.

    A web page can make its own host name resolve to 127.0.0.1 and so reach a local server under its own origin; it
    cannot use the name localhost.
    """
    if listener.family == socket.AF_UNIX or not is_local(listener):
        return None
    return frozenset({*LOCAL_HOSTS, host.lower(), listener.getsockname()[0]})


def _with_port(host: str, port: int) -> str:
    try:
        is_v6 = isinstance(ip_address(host.partition("%")[0]), IPv6Address)
    except ValueError:
        is_v6 = False
    return f"[{host}]:{port}" if is_v6 else f"{host}:{port}"
