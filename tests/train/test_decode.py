"""The reference decoder: no special token out, nothing after the end, rows independent."""

from __future__ import annotations

import pytest

from raydiff.models.loading import random_denoiser
from raydiff.train.decode import ReferenceDecoding, decode

PROMPTS = [[1, 10, 11, 12, 2], [1, 20, 21, 22, 23, 24, 25, 2], [1, 2]]
HOW = ReferenceDecoding(steps=8, block_length=16, max_tokens=40, end_bias=20.0)


def test_no_special_token_comes_out_and_max_tokens_holds() -> None:
    for tokens in decode(random_denoiser(), PROMPTS, HOW):
        assert len(tokens) <= 40
        assert not {0, 1, 2, 3} & set(tokens)


def test_a_row_alone_equals_the_row_in_a_batch() -> None:
    denoiser = random_denoiser()
    together = decode(denoiser, PROMPTS, HOW)
    assert together == [decode(denoiser, [prompt], HOW)[0] for prompt in PROMPTS]


@pytest.mark.parametrize("bias", [-1000.0, 1000.0])
def test_the_end_bias_shortens_and_lengthens(bias: float) -> None:
    how = ReferenceDecoding(steps=4, block_length=16, max_tokens=16, end_bias=bias)
    lengths = {len(tokens) for tokens in decode(random_denoiser(), PROMPTS, how)}
    assert lengths == ({0} if bias < 0 else {16})
