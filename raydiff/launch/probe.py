"""Asks whether a Ray cluster answers at an address: in seconds, where `ray.init` takes minutes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

import grpc
from ray._private.authentication import authentication_token_setup as ray_tokens
from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc

Answer = Literal["ready", "locked", "none"]
"""ready: a cluster that lets us in; locked: one that wants a token we lack; none: no cluster."""

TIMEOUT_S = 5.0


def probe(address: str) -> Answer:
    """What answers at `host:port`.

    A cluster that wants a token gets the one this user has, and later calls of this process
    carry it too: `ray.init` starts local clusters locked, but connects to them without.
    """
    answer = _ask(address, ())
    if answer != "locked" or not _use_token():
        return answer
    header = ray_tokens.AuthenticationTokenLoader.instance().get_token_for_http_header()
    return _ask(address, tuple(header.items()))


def _ask(address: str, metadata: Sequence[tuple[str, str]]) -> Answer:
    request = gcs_service_pb2.GetClusterIdRequest()
    with grpc.insecure_channel(address) as channel:
        stub = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
        try:
            stub.GetClusterId(request, timeout=TIMEOUT_S, metadata=metadata)
        except grpc.RpcError as error:
            is_locked = error.code() == grpc.StatusCode.UNAUTHENTICATED
            return "locked" if is_locked else "none"
    return "ready"


def _use_token() -> bool:
    logging.getLogger(ray_tokens.__name__).setLevel(logging.ERROR)
    return bool(ray_tokens.maybe_enable_token_auth_if_token_available(warn_if_disabled=False))
