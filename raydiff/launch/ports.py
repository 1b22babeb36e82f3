"""Local TCP ports: is one free."""

from __future__ import annotations

import errno
import socket

from raydiff.errors import ClusterError, UsageError, invalid


def require_free(option: str, host: str, port: int) -> None:
    """Refuse a port that something else listens on.

    Raises:
        ClusterError: the port is taken.
        UsageError: `host` is no address of this machine, or the port needs privileges.
    """
    try:
        with socket.create_server((host, port), family=_family(host)):
            return
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ClusterError(
                f"{option}: port {port} of {host} is taken by another process. Stop it, or "
                f"choose another port with {option}."
            ) from None
        got = f"{host}:{port}"
        expected = "an address of this machine and a port this user may open"
        message = invalid(option, expected=expected, got=got, remedy=f"{error.strerror}.")
        raise UsageError(message, option) from None


def free_port(host: str) -> int:
    """A port that is free now."""
    with socket.create_server((host, 0), family=_family(host)) as server:
        return int(server.getsockname()[1])


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
