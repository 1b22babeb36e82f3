"""The driver's eye on the replicas: a thread that asks them now and then."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

from raydiff.corpus.sizing import Fleet
from raydiff.errors import ClusterError

_log = logging.getLogger(__name__)

ASK_EVERY_S = 2.0
ANSWER_S = 5.0
FIRST_ANSWER_S = 60.0
"""How long a fleet is waited for in which a replica has just died."""

Answers = list[dict[str, Any]]
"""Of each live replica, what it says of itself."""


class Described(Protocol):
    """What is asked of `raydiff.client.Client`."""

    async def describe(self, *, timeout_s: float) -> Answers:
        """What each live replica says of itself."""


class ReplicaWatch:
    """While it is entered, tells `on_look` again and again what the replicas say of themselves."""

    def __init__(
        self,
        client: Described,
        on_look: Callable[[Answers | None], None],
        *,
        every_s: float = ASK_EVERY_S,
    ) -> None:
        """`on_look` is called on the watch's own thread; with None when one does not answer."""
        self._client = client
        self._on_look = on_look
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="raydiff-replicas", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(ANSWER_S + self._every_s)

    def _watch(self) -> None:
        while not self._ended.is_set():
            self._on_look(ask(self._client))
            self._ended.wait(self._every_s)


def ask(client: Described) -> Answers | None:
    """What the replicas say now; `None` if one does not answer."""
    try:
        return asyncio.run(client.describe(timeout_s=ANSWER_S))
    except Exception as error:
        # A replica that is about to go answers with errors of many kinds; the next answer counts.
        _log.debug("The replicas do not say what they take: %r", error)
        return None


def fleet_of(answers: Answers) -> Fleet:
    """The fleet that answered; of the usual settings where the replicas say nothing of theirs."""
    return Fleet.of(answers) or Fleet.usual(len(answers))


def first_answer(client: Described, patience_s: float = FIRST_ANSWER_S) -> Fleet:
    """What the replicas say; what is usual where they do not.

    Raises:
        ClusterError: one of them does not answer, however often it is asked.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            answers = asyncio.run(client.describe(timeout_s=ANSWER_S))
        except ClusterError:
            if time.monotonic() > deadline:
                raise
            time.sleep(ASK_EVERY_S)
        else:
            return fleet_of(answers)
