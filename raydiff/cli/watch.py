"""Shows a canvas while it is denoised: in place on a terminal, else one line a step."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import groupby
from typing import Protocol, TextIO

from raydiff.request import Completion
from raydiff.spec import ModelSpec

OPEN = "░"
END = "·"


class Decoder(Protocol):
    """The part of a tokenizer that the view needs."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`."""


class CanvasView:
    """Prints the state of one canvas after each step."""

    def __init__(self, decoder: Decoder, spec: ModelSpec, out: TextIO) -> None:
        self._decoder = decoder
        self._end_ids = frozenset(spec.end_ids)
        self._out = out
        self._step = 0
        self._last = ""
        self._rows = 0

    def show(self, tokens: Sequence[int], is_open: Sequence[bool]) -> None:
        """Print the canvas if it changed. Open positions are shaded, end tokens are dots."""
        line = self.render(tokens, is_open)
        if line == self._last:
            return
        self._last = line
        self._print(f"{self._step:>3} {line}")
        self._step += 1

    def close(self, completion: Completion) -> None:
        """Print what the text cost."""
        usage = completion.usage
        if self._out.isatty():
            self._out.write("\n")
        self._out.write(
            f"{usage.completion_tokens} tokens in {usage.forwards} forwards "
            f"({usage.tokens_per_forward:.1f} tokens a forward)\n"
        )
        self._out.flush()

    def render(self, tokens: Sequence[int], is_open: Sequence[bool]) -> str:
        """One line: neighbouring tokens that are known are decoded together."""
        kinds = [
            OPEN if o else END if t in self._end_ids else ""
            for t, o in zip(tokens, is_open, strict=True)
        ]
        parts: list[str] = []
        start = 0
        for kind, run in groupby(kinds):
            length = len(list(run))
            known = tokens[start : start + length]
            parts.append(kind * length if kind else self._decoder.decode(known))
            start += length
        return " ".join("".join(parts).splitlines())

    def _print(self, line: str) -> None:
        if self._out.isatty():
            up = f"\x1b[{self._rows - 1}A" if self._rows > 1 else ""
            self._out.write(f"{up}\r\x1b[J{line}")
            self._rows = -(-len(line) // shutil.get_terminal_size().columns)
        else:
            self._out.write(line + "\n")
        self._out.flush()
