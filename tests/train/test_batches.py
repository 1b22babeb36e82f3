"""Training visits documents in an order that only seed and epoch decide."""

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from raydiff.train.batches import (
    GROUP_CAP,
    TokenisedPairs,
    epoch_batches,
    prompt,
    tokenise_pairs,
)
from raydiff.train.debian import Pair
from raydiff.train.tokenizer import BEGIN_ID, END_ID, MASK_ID, train_tokenizer


def many_pairs() -> TokenisedPairs:
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 40, size=200)
    return TokenisedPairs(
        documents=[np.full(length, 9, dtype=np.int64) for length in lengths],
        summaries=[np.full(3, 8, dtype=np.int64) for _ in lengths],
        groups=np.arange(200) // 4,
    )


def test_an_epoch_repeats_for_its_seed_and_differs_between_epochs() -> None:
    pairs = many_pairs()
    first, again = (epoch_batches(pairs, 8, 30, seed=1, epoch=0) for _ in range(2))
    other = epoch_batches(pairs, 8, 30, seed=1, epoch=1)
    assert np.array_equal(first, again)
    assert len(first) == len(other)
    assert not np.array_equal(first, other)


def test_no_document_comes_twice_in_an_epoch_and_groups_are_capped() -> None:
    pairs = many_pairs()
    rows = np.concatenate(epoch_batches(pairs, 8, 30, seed=1, epoch=0))
    assert len(set(rows.tolist())) == len(rows)
    assert np.bincount(pairs.groups[rows]).max() <= GROUP_CAP


def test_a_batch_holds_documents_of_like_length() -> None:
    pairs = many_pairs()
    spreads = [
        np.ptp([len(pairs.documents[row]) for row in batch])
        for batch in epoch_batches(pairs, 8, 100, seed=1, epoch=0)
    ]
    assert max(spreads) <= 10


def test_tokenised_pairs_survive_a_round_trip_and_carry_no_special_token(tmp_path: Path) -> None:
    texts = [Pair("a", "a document <|mask|>", "one"), Pair("b", "another document", "two")]
    tokenizer: Tokenizer = train_tokenizer([pair.text for pair in texts], vocab_size=300)
    pairs = tokenise_pairs(tokenizer, texts)
    pairs.save(tmp_path / "pairs.npz")
    loaded = TokenisedPairs.load(tmp_path / "pairs.npz")
    for kept, read in zip(pairs.documents, loaded.documents, strict=True):
        assert np.array_equal(kept, read)
        assert MASK_ID not in read
    assert loaded.groups.tolist() == [0, 1]


def test_a_prompt_is_cut_and_framed() -> None:
    assert prompt(np.arange(10, 20), 3).tolist() == [BEGIN_ID, 10, 11, 12, END_ID]
