"""Labels become the token sequences that a model chooses from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raydiff.config import TaskSettings
from raydiff.errors import UsageError
from raydiff.families import load_spec
from raydiff.request import Decoding
from raydiff.text import Tokenizer, decoding_for, label_tokens, longest_text

MODEL = "random:tiny-llada"
LABELS = TaskSettings(kind="label", labels=("sport", "the weather"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(MODEL)


def test_each_label_has_the_tokens_of_its_text_in_the_order_given(tokenizer: Tokenizer) -> None:
    found = label_tokens(tokenizer, ["b", "a", "a b"])
    assert list(found.values()) == ["b", "a", "a b"]
    assert [tokenizer.decode(ids) for ids in found] == ["b", "a", "a b"]


@pytest.mark.parametrize("labels", [(), ("one",), ("a", ""), ("a", " b"), ("a", "b", "a")])
def test_labels_that_cannot_be_told_apart_are_refused(
    tokenizer: Tokenizer, labels: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError, match="labels: expected") as caught:
        label_tokens(tokenizer, labels)
    assert caught.value.param == "labels"


def test_labels_that_a_tokenizer_takes_for_the_same_are_named() -> None:
    """An uncased model reads Sport and sport alike."""

    class Uncased:
        spec = load_spec(MODEL)

        def encode_batch(self, texts: list[str]) -> list[list[int]]:
            return [[ord(letter) for letter in text.lower()] for text in texts]

    with pytest.raises(UsageError, match=r"\['Sport', 'sport'\]"):
        label_tokens(Uncased(), ["Sport", "politics", "sport"])  # type: ignore[arg-type]


def test_labelling_takes_the_most_likely_label_and_has_room_for_the_longest() -> None:
    decoding = decoding_for(MODEL, LABELS, Decoding())
    assert (decoding.temperature, decoding.max_tokens) == (0.0, len("the weather") + 1)
    given = Decoding(temperature=0.7, max_tokens=40)
    assert decoding_for(MODEL, LABELS, given) == given


def test_a_rewritten_chunk_has_room_to_be_as_long_as_it_was() -> None:
    """The chunk's share of the room is bounded by the answer's, unless a length is asked for."""
    rewrite = TaskSettings(kind="rewrite")
    decoding = decoding_for(MODEL, rewrite, Decoding())
    assert decoding.max_tokens is not None
    longest = longest_text(rewrite, decoding)
    assert longest is not None
    assert 0 < longest < decoding.max_tokens
    assert longest_text(rewrite, replace(decoding, max_tokens=10)) == 8
    assert longest_text(TaskSettings(kind="rewrite", target_words=20), decoding) is None
    assert longest_text(TaskSettings(), decoding) is None
    assert longest_text(LABELS, decoding) is None
