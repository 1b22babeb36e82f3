"""Signals: SIGTERM unwinds like Ctrl-C; neither disturbs starting Ray or cleaning up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from ray._private import utils as ray_utils

_at_termination: list[Callable[[], None]] = []


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


@contextmanager
def at_termination(request: Callable[[], None]) -> Iterator[None]:
    """Inside `terminable`, SIGTERM calls `request` at once, before anything unwinds.

    `ray job stop` kills three seconds after SIGTERM, and what is unwound first may take longer.
    `request` runs on a thread of its own, beside whatever the signal interrupted.
    """
    _at_termination.append(request)
    try:
        yield
    finally:
        _at_termination.remove(request)


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM raises Terminated in the main thread."""
    if not _in_main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Inside, SIGINT and SIGTERM are ignored."""
    if not _in_main_thread():
        yield
        return
    both = (signal.SIGINT, signal.SIGTERM)
    previous = [signal.signal(number, signal.SIG_IGN) for number in both]
    try:
        yield
    finally:
        for number, handler in zip(both, previous, strict=True):
            signal.signal(number, handler)


@contextmanager
def deferred() -> Iterator[None]:
    """Inside, SIGINT and SIGTERM wait; at the end the first of them raises.

    For `ray.init`: interrupted half-way it leaves processes that nobody stops. Ray's own SIGTERM
    handlers, which would exit in the middle, are not installed.
    """
    if not _in_main_thread():
        yield
        return
    arrived: list[int] = []
    both = (signal.SIGINT, signal.SIGTERM)
    previous = [signal.signal(number, lambda n, _: arrived.append(n)) for number in both]
    installer = ray_utils.set_sigterm_handler
    ray_utils.set_sigterm_handler = lambda handler: None
    try:
        yield
    finally:
        ray_utils.set_sigterm_handler = installer
        for number, handler in zip(both, previous, strict=True):
            signal.signal(number, handler)
    if arrived:
        raise KeyboardInterrupt if arrived[0] == signal.SIGINT else Terminated


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    for request in reversed(_at_termination):
        threading.Thread(target=request, daemon=True).start()
    raise Terminated


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
