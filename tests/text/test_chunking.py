"""Long texts in pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.errors import DocumentTooLong, UsageError
from raydiff.models.loading import random_denoiser
from raydiff.text import Tokenizer, split_into_chunks
from raydiff.text.chunking import Chunk, Cutter, beginning
from tests.engine.conftest import LETTERS, character_tokenizer
from tests.text.conftest import KINDS, MAKERS, spec_for

TOKENIZERS = {kind: Tokenizer(MAKERS[kind](), spec_for(MAKERS[kind]())) for kind in KINDS}

sentences = st.lists(
    st.sampled_from(
        [
            *"The small library reads",
            " ",
            " ",
            ". ",
            "! ",
            "\n",
            "\n\n",
            "。",
            "？",
            "3.14",
            "Mr. ",
            "é☃",
        ]
    ),
    max_size=200,
).map("".join)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return character_tokenizer(random_denoiser().spec)


def chunks_of(kind: str, text: str, room: int, overlap: int = 0) -> list[Chunk]:
    tokenizer = TOKENIZERS[kind]
    cutter = Cutter(
        tokenizer=tokenizer,
        render=tokenizer.encode,
        limit=room,
        room=room,
        overlap_tokens=overlap,
    )
    return list(cutter.chunks(text))


@settings(deadline=None)
@given(text=st.text(LETTERS, max_size=300), size=st.integers(4, 50), overlap=st.integers(0, 2))
def test_chunks_fit_and_cover_the_text_in_order(
    tokenizer: Tokenizer, text: str, size: int, overlap: int
) -> None:
    chunks = split_into_chunks(tokenizer, text, size, overlap)
    assert all(len(tokenizer.encode(chunk)) <= size for chunk in chunks)
    position = 0
    for chunk in chunks:
        start = text.find(chunk, max(0, position - overlap))
        assert 0 <= start <= position
        position = start + len(chunk)
    assert position == len(text)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=60)
@given(text=st.one_of(sentences, st.text(max_size=200)), room=st.integers(12, 60), data=st.data())
def test_no_character_is_lost_whatever_the_tokenizer(
    kind: str, text: str, room: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, room // 2))
    chunks = chunks_of(kind, text, room, overlap)
    assert chunks == chunks_of(kind, text, room, overlap)
    assert (chunks[0].begin, chunks[-1].end) == (0, len(text))
    for chunk in chunks:
        assert list(chunk.rendered) == TOKENIZERS[kind].encode(text[chunk.begin : chunk.end])
        assert len(chunk.rendered) <= room
    for before, after in itertools.pairwise(chunks):
        assert before.begin < after.begin <= before.end < after.end
        repeated = text[after.begin : before.end]
        assert len(TOKENIZERS[kind].encode(repeated)) <= overlap + 2


def test_a_short_text_is_one_chunk(tokenizer: Tokenizer) -> None:
    assert split_into_chunks(tokenizer, "hello", 10) == ["hello"]
    assert split_into_chunks(tokenizer, "", 10) == [""]


def test_cuts_fall_on_sentence_ends(tokenizer: Tokenizer) -> None:
    chunks = split_into_chunks(tokenizer, "One two three. Four five six. Seven eight.", 20)
    assert [c.strip() for c in chunks] == ["One two three.", "Four five six.", "Seven eight."]


def test_a_paragraph_end_is_better_than_a_later_sentence_end(tokenizer: Tokenizer) -> None:
    text = "One two three.\n\nFour. Five six seven eight nine."
    chunks = split_into_chunks(tokenizer, text, 24)
    assert chunks[0] == "One two three.\n\n"


def test_words_stay_whole_where_there_is_no_sentence_end(tokenizer: Tokenizer) -> None:
    chunks = split_into_chunks(tokenizer, "wordone wordtwo wordthree wordfour wordfive", 18)
    words = [word for chunk in chunks for word in chunk.split()]
    assert words == ["wordone", "wordtwo", "wordthree", "wordfour", "wordfive"]


def test_text_without_spaces_is_cut_at_its_own_full_stops() -> None:
    text = "这是第一句。这是第二句！这是第三句？「你好。」最后一句。"
    pieces = [text[c.begin : c.end] for c in chunks_of("bytes", text, 44)]
    assert all(piece[-1] in "。！？」" for piece in pieces)
    assert len(pieces) > 1


def test_neighbours_share_whole_sentences_where_one_fits(tokenizer: Tokenizer) -> None:
    text = " ".join(f"Number {word} is." for word in ("one", "two", "six", "ten", "nil", "odd"))
    chunks = split_into_chunks(tokenizer, text, 48, 20)
    for before, after in itertools.pairwise(chunks):
        first_sentence = after.split(". ")[0]
        assert before.strip().endswith(f"{first_sentence}.")


def test_neighbours_share_words_where_no_sentence_fits(tokenizer: Tokenizer) -> None:
    text = " ".join(["word"] * 100)
    chunks = split_into_chunks(tokenizer, text, 64, 16)
    assert sum(map(len, chunks)) > len(text) + 8 * (len(chunks) - 1)


def test_an_overlap_as_long_as_the_chunk_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match="overlap_tokens"):
        split_into_chunks(tokenizer, "hello", 10, 6)


def test_a_character_that_does_not_fit_is_named() -> None:
    with pytest.raises(DocumentTooLong, match="character '☃' alone"):
        chunks_of("bytes", "The ☃ reads", 2)


def test_chunks_are_full(tokenizer: Tokenizer) -> None:
    text = " ".join(f"This is number {n % 10}." for n in range(400))
    chunks = split_into_chunks(tokenizer, text, 200)
    assert all(len(chunk) > 150 for chunk in chunks[:-1])


@pytest.mark.parametrize("most", [40, 2**16, 70_000])
def test_a_beginning_ends_well_within_its_tokens(tokenizer: Tokenizer, most: int) -> None:
    text = "This is number one. " * 5000
    kept = beginning(tokenizer, text, most)
    assert text.startswith(kept)
    assert kept.strip().endswith("one.")
    assert most - 21 < len(tokenizer.encode(kept)) <= most


class CountingTokenizer(Tokenizer):
    """Counts the characters that it encodes, and the most at once."""

    def __init__(self) -> None:
        backend = MAKERS["bytes"]()
        super().__init__(backend, spec_for(backend))
        self.characters = 0
        self.most = 0

    def _note(self, characters: int) -> None:
        self.characters += characters
        self.most = max(self.most, characters)

    def encode(self, text: str) -> list[int]:
        self._note(len(text))
        return super().encode(text)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:  # type: ignore[override]  # narrower on purpose
        self._note(sum(map(len, texts)))
        return super().encode_batch(texts)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        self._note(len(text))
        return super().offsets(text)


@pytest.mark.parametrize(
    "pattern",
    [
        "A small library reads. ",
        "a",
        ".",
        "\n",
        " ",
        "。",
        '."',
        "word ",
        "a\n\n",
        "\n ",
        ").",
        "é",
    ],
)
def test_work_grows_with_the_length_and_memory_does_not(pattern: str) -> None:
    """Ten times the text is ten times the tokenizing, in pieces of the same size."""
    seen = []
    for length in (30_000, 300_000):
        tokenizer = CountingTokenizer()
        text = (pattern * length)[:length]
        chunks = split_into_chunks(tokenizer, text, 500, 60)
        assert sum(map(len, chunks)) >= length
        seen.append((tokenizer.characters / length, tokenizer.most))
    assert seen[1][0] <= seen[0][0] * 1.3
    assert seen[0][0] < 8
    assert seen[1][1] < 100_000
