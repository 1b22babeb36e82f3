"""Documents as prompts: bare, or asked about in a chat, never longer than there is room."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.errors import UsageError
from raydiff.text import DocumentPrompts, Tokenizer, instruction_for, split_into_chunks
from raydiff.text.documents import DEFAULT_INSTRUCTION
from raydiff.text.template import ChatTemplate
from tests.corpus.conftest import make_toy_model
from tests.text.conftest import CHATML, KINDS, MAKERS, spec_for


def _tokenizer(kind: str, context_length: int | None = None) -> Tokenizer:
    backend = MAKERS[kind]()
    spec = replace(spec_for(backend), context_length=context_length)
    return Tokenizer(backend, spec, ChatTemplate(CHATML))


TOKENIZERS = {kind: _tokenizer(kind, context_length=100) for kind in KINDS}
letters = st.text("The smal libry.,\n<|im_end>é☃", max_size=300)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("instruction", [None, "", "Say it in a few words."])
@settings(deadline=None, max_examples=25)
@given(text=letters)
def test_whatever_is_cut_fits_and_whatever_fits_is_not_cut(
    kind: str, instruction: str | None, text: str
) -> None:
    prompts = DocumentPrompts.of(TOKENIZERS[kind], instruction, 16)
    assert prompts.limit == 84
    (whole,) = prompts.whole([text])
    if whole is not None:
        assert len(whole) <= prompts.limit
        assert prompts.cut(text) == whole
    pieces = split_into_chunks(TOKENIZERS[kind], text, prompts.max_text_tokens, 3)
    assert all(len(prompts.cut(piece)) <= prompts.limit for piece in pieces)


def test_the_instruction_stands_before_the_document_in_one_message() -> None:
    tokenizer = TOKENIZERS["bytes"]
    (prompt,) = DocumentPrompts.of(tokenizer, "Shorten.", 16).whole(["a b"])
    assert tokenizer.decode(prompt or ()) == (
        "<|im_start|>user\nShorten.\n\na b<|im_end|>\n<|im_start|>assistant\n"
    )


def test_without_an_instruction_the_prompt_is_the_bare_document() -> None:
    tokenizer = TOKENIZERS["bytes"]
    assert DocumentPrompts.of(tokenizer, None, 16).whole(["a b"]) == [tokenizer.prompt_ids("a b")]


def test_an_instruction_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(UsageError, match="instruction: expected to leave room") as caught:
        DocumentPrompts.of(TOKENIZERS["bytes"], "word " * 100, 16)
    assert caught.value.param == "instruction"


def test_only_models_with_a_chat_template_are_told_what_to_do(tmp_path: Path) -> None:
    plain = make_toy_model(tmp_path / "plain", 64)
    chat = shutil.copytree(plain, tmp_path / "chat")
    (chat / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    assert instruction_for(plain, None) is None
    assert instruction_for(plain, "") is None
    assert instruction_for(chat, None) == DEFAULT_INSTRUCTION
    assert instruction_for(chat, "") == ""
    assert instruction_for(chat, "Translate it.") == "Translate it."
    with pytest.raises(UsageError, match="has no chat template") as caught:
        instruction_for(plain, "Translate it.")
    assert caught.value.param == "instruction"
