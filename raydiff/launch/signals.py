"""Signals during a run: SIGTERM unwinds like Ctrl-C, and cleaning up is not interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


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


def restore_terminate() -> None:
    """Take SIGTERM back from Ray, whose `init` replaces the handler."""
    if _in_main_thread():
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
