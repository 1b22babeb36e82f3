"""Processes that answer messages, one at a time, and end with whoever started them."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from raydiff.errors import ClusterError

Argument = TypeVar("Argument")
Handler = Callable[[Any], Any]
Build = Callable[[Argument], AbstractContextManager[Handler]]

END_S = 60.0
"""How long a process may take to clear up."""


class Remote(Generic[Argument]):
    """A handler of messages in a fresh process. Messages and answers are pickled."""

    def __init__(self, build: Build[Argument], argument: Argument) -> None:
        """`build` is a function of a module; its handler serves until the process ends."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_main, args=(theirs, build, argument))
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def send(self, message: Any) -> None:
        """Hand a message over, without waiting."""
        self._connection.send(message)

    def receive(self) -> Any:
        """The next answer; the first one, `None`, comes when the handler is ready.

        Raises:
            ClusterError: the process died.
            Exception: whatever the handler, or building it, raised.
        """
        try:
            answer = self._connection.recv()
        except EOFError:
            raise ClusterError(f"Process {self.pid} of the benchmark died.") from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def ask(self, message: Any) -> Any:
        """Send a message and wait for its answer."""
        self.send(message)
        return self.receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()  # the process reads it as the end
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _main(connection: Connection, build: Build[Argument], argument: Argument) -> None:
    # Ctrl-C reaches the whole group; whoever started this process ends it by closing the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with build(argument) as handle:
            connection.send(None)
            while True:
                connection.send(handle(connection.recv()))
    except (EOFError, BrokenPipeError):
        return
    except BaseException as error:
        with suppress(OSError):  # nobody may be left to hear of it
            connection.send(error)
