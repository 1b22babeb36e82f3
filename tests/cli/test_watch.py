"""The canvas view shows what is known and what is open."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest

from raydiff.cli.watch import CanvasView
from raydiff.request import Completion, Decoding, Usage
from raydiff.spec import ModelSpec

SPEC = ModelSpec(
    name="test",
    family="bert",
    vocab_size=100,
    hidden_size=4,
    kv=(),
    pad_id=0,
    mask_id=3,
    end_ids=(2,),
    max_prompt_tokens=8,
    block_length=4,
    max_new_tokens=8,
    defaults=Decoding(),
)


class FakeDecoder:
    """Token 10 is "a", 11 is "b", and so on."""

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(ord("a") + i - 10) for i in ids)


class FakeTerminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True


def _view(out: io.StringIO) -> CanvasView:
    return CanvasView(FakeDecoder(), SPEC, out)


def test_open_positions_are_shaded_and_end_tokens_are_dots() -> None:
    view = _view(io.StringIO())
    assert view.render([10, 3, 11, 12, 2], [False, True, False, False, False]) == "a░bc·"


def test_a_literal_mask_token_that_is_closed_is_shown_as_text() -> None:
    assert _view(io.StringIO()).render([3], [False]) != "░"


def test_an_unchanged_canvas_is_shown_once() -> None:
    out = io.StringIO()
    view = _view(out)
    view.show([3, 3], [True, True])
    view.show([3, 3], [True, True])
    view.show([3, 10], [True, False])
    assert out.getvalue() == "  0 ░░\n  1 ░a\n"


def test_a_terminal_is_redrawn_in_place_however_many_rows_the_canvas_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    out = FakeTerminal()
    view = _view(out)
    view.show([3] * 12, [True] * 12)  # 16 characters: two rows
    view.show([10] * 12, [False] * 12)
    assert out.getvalue() == f"\r\x1b[J  0 {'░' * 12}\x1b[1A\r\x1b[J  1 {'a' * 12}"


def test_the_cost_is_told_at_the_end() -> None:
    out = io.StringIO()
    usage = Usage(prompt_tokens=3, completion_tokens=12, forwards=5)
    _view(out).close(
        Completion(request_id="r", text="", token_ids=(), finish_reason="stop", usage=usage)
    )
    assert out.getvalue() == "12 tokens in 5 forwards (2.4 tokens a forward)\n"
