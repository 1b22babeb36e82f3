"""The copying start: an untrained model leans towards the prompt's first words."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig

from raydiff.models.bert import BertDenoiser
from raydiff.models.loading import random_denoiser
from raydiff.train.small import start_config
from raydiff.train.start import copying_start, random_words, word_width

VOCAB, PROMPT, TARGET = 200, 20, 8
BEGIN, END, MASK = 1, 2, 3


@pytest.fixture(scope="module")
def config() -> BertConfig:
    return start_config(VOCAB, PROMPT + TARGET)


def best_tokens(config: BertConfig, prompts: list[list[int]], seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    words_VW = random_words(VOCAB, word_width(config), seed)
    model = copying_start(config, PROMPT, words_VW).eval().requires_grad_(False)
    spec = random_denoiser(vocab=VOCAB, target_position=PROMPT, block_length=TARGET).spec
    denoiser = BertDenoiser(model, spec)
    prompt_BT = torch.tensor(prompts)
    rows, width = prompt_BT.shape
    past = denoiser.encode(prompt_BT, torch.arange(width).expand(rows, -1), None, None)
    masked_BL = torch.full((rows, TARGET), MASK)
    places_BL = (PROMPT + torch.arange(TARGET)).expand(rows, -1)
    hidden_BLD, _ = denoiser.forward(masked_BL, places_BL, None, past, False)
    logits_NV = denoiser.logits(hidden_BLD.flatten(0, 1))
    logits_NV[:, : MASK + 1] = float("-inf")  # as in decoding, no mask is predicted
    return logits_NV.argmax(-1).view(rows, TARGET)


def test_masks_are_filled_with_the_prompts_words_in_their_order(config: BertConfig) -> None:
    generator = torch.Generator().manual_seed(1)
    texts = torch.randint(4, VOCAB, (4, PROMPT - 2), generator=generator).tolist()
    best_BL = best_tokens(config, [[BEGIN, *text, END] for text in texts])
    expected_BL = torch.tensor([text[:TARGET] for text in texts])
    assert float((best_BL == expected_BL).float().mean()) > 0.3


def test_another_prompt_gives_another_text(config: BertConfig) -> None:
    one = [BEGIN, *range(10, 28), END]
    other = [BEGIN, *range(60, 78), END]
    best_BL = best_tokens(config, [one, other])
    assert not torch.equal(best_BL[0], best_BL[1])


def test_words_and_positions_share_no_dimension(config: BertConfig) -> None:
    words_VW = random_words(VOCAB, word_width(config), 0)
    table = copying_start(config, PROMPT, words_VW).bert.embeddings
    used = [
        embedding.weight.abs().sum(0) > 0
        for embedding in (
            table.word_embeddings,
            table.position_embeddings,
            table.token_type_embeddings,
        )
    ]
    assert int(torch.stack(used).sum(0).max()) == 1
