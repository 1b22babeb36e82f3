"""Where the endpoint may listen without keys."""

from __future__ import annotations

import ipaddress
import socket

from raydiff.config import AccessSettings
from raydiff.errors import UsageError, invalid


def check_binding(access: AccessSettings, host: str | None) -> None:
    """Refuse to listen beyond loopback while everyone may call.

    Raises:
        UsageError: `host` is such an address, there are no keys, and nothing says that there need
            be none; or there are keys, and something says so.
    """
    if access.keys_file is not None:
        if access.anonymous == "allowed":
            remedy = "Give one of the two."
            expected = "'loopback' beside keys_file"
            message = invalid("access.anonymous", expected=expected, got="allowed", remedy=remedy)
            raise UsageError(message, "access.anonymous")
        return
    if access.anonymous == "allowed" or is_loopback(host):
        return
    remedy = (
        "Without API keys, everyone who reaches another address may use the endpoint. Set "
        "access.keys_file (--keys-file; `raydiff keys new` makes keys), or say that this is meant: "
        "access.anonymous: allowed (--allow-anonymous)."
    )
    raise UsageError(invalid("host", expected="a loopback address", got=host, remedy=remedy))


def is_loopback(host: str | None) -> bool:
    """Whether only this machine reaches a server that listens on `host`.

    `None` is Serve's "no HTTP server". A name counts if all its addresses do.
    """
    if host is None:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None) if host else []
    except (OSError, UnicodeError):
        return False
    addresses = {str(address[4][0]) for address in found}
    return bool(addresses) and all(ipaddress.ip_address(a).is_loopback for a in addresses)


def listening_host() -> str | None:
    """The address that Serve's HTTP servers listen on, asked of Serve itself.

    An application cannot see it: in a Serve config it stands beside the application, and its
    default there is all interfaces. HAProxy and Serve's own proxy use the same one.
    """
    from ray.serve.context import _get_global_client

    host: str | None = _get_global_client().http_config.host
    return host
