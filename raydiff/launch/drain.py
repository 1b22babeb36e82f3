"""Before an application goes: its gateways take nothing new, and what runs may end."""

from __future__ import annotations

import logging
import time

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from raydiff.serve.app import GATEWAY

log = logging.getLogger(__name__)

POLL_S = 0.2
ANSWER_S = 2.0


def drain_gateways(app_name: str, drain_s: float) -> None:
    """Let the requests in flight end, for up to `drain_s`; new ones get 503 from now on.

    A second signal ends it at once.
    """
    deadline = time.monotonic() + drain_s
    try:
        handle = serve.get_deployment_handle(GATEWAY, app_name=app_name)
        left = 1
        while left and time.monotonic() < deadline:
            left = sum(handle.broadcast("drain").results(timeout_s=ANSWER_S))
            if left:
                time.sleep(POLL_S)
        if left:
            log.warning("%d requests had not ended after %g s and are cut off.", left, drain_s)
    except (RayError, RayServeException, TimeoutError, RuntimeError) as error:
        log.warning("The gateways could not be drained: %s", type(error).__name__)
    except KeyboardInterrupt:
        log.warning("Interrupted: requests in flight are cut off.")
