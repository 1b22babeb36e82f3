"""What a driver's workers run first: a tokenizer that breaks on documents that say so."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from raydiff.text import Tokenizer

from .corpus import BREAKS_TOKENIZER, KILLS_WORKER

INSTALL = f"{__name__}.install"
"""For Ray's `worker_process_setup_hook`."""


class PanicException(BaseException):
    """As the tokenizers library raises: no `Exception`."""


def install() -> None:
    """Break this process's tokenizers."""
    encode, encode_batch = Tokenizer.encode, Tokenizer.encode_batch

    def fragile(self: Tokenizer, text: str) -> list[int]:
        _look(text)
        return encode(self, text)

    def fragile_batch(self: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        for text in texts:
            _look(text)
        return encode_batch(self, texts)

    Tokenizer.encode = fragile  # type: ignore[method-assign]  # that is the point
    Tokenizer.encode_batch = fragile_batch  # type: ignore[method-assign]  # that is the point


def _look(text: str) -> None:
    if KILLS_WORKER in text:
        os.kill(os.getpid(), signal.SIGKILL)
    if BREAKS_TOKENIZER in text:
        raise PanicException("the tokenizer broke")
