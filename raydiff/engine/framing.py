"""The frame that a canvas denoises next, with what is known of it from the start. Numpy only."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from raydiff.engine.choices import Choices
from raydiff.engine.frame import Frame, Geometry, Ints, filling
from raydiff.spec import ModelSpec


def next_frame(
    spec: ModelSpec,
    shape: Geometry,
    prompt: Ints,
    *,
    done: int,
    max_tokens: int,
    given: Mapping[int, int] | Choices,
    rng: np.random.Generator,
) -> Frame:
    """The frame after `done` generated tokens. `given` has tokens by their offset in the generated
    text, or the choices left, of which it takes what they agree on."""
    lead = shape.lead(len(prompt), done)
    start = len(prompt) + done - lead
    noise = filling(spec, shape.frame_length, rng)
    frame = Frame(shape, start, prompt[len(prompt) - lead :], noise)
    if isinstance(given, Choices):
        given.close_agreed(frame, done)
        return frame
    _give_beyond(spec, frame, lead + max_tokens - done)
    for offset, token in given.items():
        at = len(prompt) + offset - start
        if lead <= at < len(frame) and offset < max_tokens:
            frame.give(slice(at, at + 1), token)
    return frame


def _give_beyond(spec: ModelSpec, frame: Frame, at: int) -> None:
    """Positions past `max_tokens`: uniform noise is denoised whole and cut; our own models were
    trained with end tokens there; the rest stay masks that nothing waits for.
    """
    beyond = slice(max(0, at), None)
    if spec.noise == "uniform":
        return
    own = spec.attention == "encoder-block"
    frame.give(beyond, spec.end_ids[0] if own else frame.tokens[beyond])
