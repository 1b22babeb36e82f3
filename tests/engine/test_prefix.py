"""The index of prompts' beginnings and the tensors behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.engine.frame import Ints
from raydiff.engine.prefix import (
    MIN_SEGMENT,
    Piece,
    PrefixIndex,
    index_for,
    leaders,
    segment_length,
)
from raydiff.engine.prefix_store import PrefixStore
from raydiff.models.denoiser import Cache
from raydiff.models.random import random_denoiser
from raydiff.spec import Attention

BYTES = 3
"""Of one position."""
SEGMENT = 2


def array(ids: Sequence[int]) -> Ints:
    return np.array(ids, dtype=np.int64)


def index(positions: int, segment: int | None = SEGMENT) -> PrefixIndex:
    """An index with room for so many positions."""
    return PrefixIndex(positions * BYTES, BYTES, segment)


def keep(index: PrefixIndex, ids: Sequence[int]) -> tuple[Piece, ...]:
    """Keep a prompt's segments, in a plan of its own."""
    pieces, _ = index.keep(array(ids))
    index.release()
    return pieces


def reused(index: PrefixIndex, ids: Sequence[int]) -> int:
    """Tokens of a prompt that are kept."""
    pieces = index.take(array(ids))
    index.release()
    return pieces[-1].end if pieces else 0


def test_a_shared_beginning_is_found_and_the_rest_is_not() -> None:
    cache = index(20)
    keep(cache, [1, 2, 3, 4, 5, 6])
    assert reused(cache, [1, 2, 3, 4, 9, 9]) == 4
    assert reused(cache, [1, 2, 3, 4, 5, 6, 7, 8]) == 6
    assert reused(cache, [3, 4, 5, 6]) == 0  # the same tokens elsewhere are no beginning


def test_only_whole_segments_are_kept() -> None:
    cache = index(20)
    keep(cache, [1, 2, 3])
    assert reused(cache, [1, 2, 3]) == 2
    assert keep(cache, [5]) == ()


def test_without_segments_only_identical_prompts_are_reused() -> None:
    cache = index(20, segment=None)
    keep(cache, [1, 2, 3])
    assert reused(cache, [1, 2, 3]) == 3
    assert reused(cache, [1, 2, 3, 4]) == reused(cache, [1, 2]) == 0


def test_what_is_kept_already_is_not_kept_twice() -> None:
    cache = index(20)
    first = keep(cache, [1, 2, 3, 4])
    again = keep(cache, [1, 2, 3, 4, 5, 6])
    assert [(p.begin, p.end) for p in first] == [(0, 2), (2, 4)]
    assert [(p.begin, p.end) for p in again] == [(4, 6)]
    assert cache.held_bytes == 6 * BYTES


def test_the_prompt_used_longest_ago_makes_room() -> None:
    cache = index(4)
    keep(cache, [1, 1])
    keep(cache, [2, 2])
    reused(cache, [1, 1])
    keep(cache, [3, 3])
    assert (reused(cache, [1, 1]), reused(cache, [2, 2]), reused(cache, [3, 3])) == (2, 0, 2)


def test_a_prompt_loses_its_end_before_its_beginning() -> None:
    cache = index(6)
    keep(cache, [1, 1, 2, 2, 3, 3])
    keep(cache, [8, 8])
    assert reused(cache, [1, 1, 2, 2, 3, 3]) == 4


def test_a_prompt_too_long_for_the_bound_keeps_its_beginning() -> None:
    cache = index(5)
    assert len(keep(cache, [1, 1, 2, 2, 3, 3, 4, 4])) == 2
    assert reused(cache, [1, 1, 2, 2, 3, 3]) == 4


def test_what_a_plan_uses_makes_no_room() -> None:
    cache = index(4)
    keep(cache, [1, 1, 2, 2])
    assert len(cache.take(array([1, 1, 2, 2]))) == 2
    assert cache.keep(array([5, 5])) == ((), ())
    cache.release()
    assert len(keep(cache, [5, 5])) == 1


def test_what_a_plan_continues_makes_no_room_either() -> None:
    """The beginning of a segment that is in use is not dropped from under it."""
    cache = index(4)
    keep(cache, [1, 1])
    assert len(cache.keep(array([1, 1, 2, 2]))[0]) == 1
    assert cache.keep(array([5, 5])) == ((), ())


def test_what_is_missing_first_is_the_same_for_prompts_that_share_it() -> None:
    cache = index(20)
    keep(cache, [1, 1])
    one, other = cache.missing(array([1, 1, 2, 2, 3, 3])), cache.missing(array([1, 1, 2, 2, 4, 4]))
    assert one is not None
    assert one == other != cache.missing(array([2, 2]))
    assert cache.missing(array([1, 1])) is None
    assert cache.missing(array([1, 1, 2])) is None  # no whole segment is left
    assert index(1).missing(array([1, 1])) is None  # it would not fit


def test_of_prompts_that_lack_the_same_only_the_first_is_encoded_now() -> None:
    cache = index(20)
    keep(cache, [1, 1])
    prompts = [[1, 1, 2, 2], [1, 1, 2, 2, 3, 3], [1, 1, 4, 4], [1, 1], [5, 5], [1, 1], [5, 5, 6]]
    assert leaders(cache, [array(prompt) for prompt in prompts]) == [0, 2, 3, 4, 5]
    full = index(1)  # where nothing can be kept, nobody waits
    assert leaders(full, [array([1, 1]), array([1, 1])]) == [0, 1]


@pytest.mark.parametrize(
    ("attention", "asked", "expected"),
    [
        ("block-causal", None, 100),
        ("causal-encoder", None, 100),
        ("encoder-block", None, None),
        ("encoder-block", 50, 50),
        ("block-causal", 0, None),
        ("block-causal", 900, 800),
        ("full", 50, None),
    ],
)
def test_an_eighth_of_the_budget_keeps_prompts_that_can_share_a_beginning(
    attention: Attention, asked: int | None, expected: int | None
) -> None:
    made = index_for(replace(random_denoiser().spec, attention=attention), 4, asked, 800)
    assert (made and made.capacity_bytes) == expected


def test_a_report_counts_since_the_last() -> None:
    cache = index(2)
    reused(cache, [1, 1])
    keep(cache, [1, 1])
    reused(cache, [1, 1, 5])
    keep(cache, [2, 2])
    report = cache.report()
    assert (report.lookups, report.hits, report.reused_tokens) == (2, 1, 2)
    assert (report.evictions, report.held_bytes) == (1, 2 * BYTES)
    assert cache.report().lookups == 0


def test_where_memory_ran_short_half_as_much_is_kept() -> None:
    cache = index(4)
    keep(cache, [1, 1, 2, 2])
    cache.halve()
    assert cache.held_bytes == 0
    assert len(keep(cache, [1, 1, 2, 2])) == 1


def test_clearing_forgets_everything() -> None:
    cache = index(20)
    keep(cache, [1, 1, 2, 2])
    cache.clear()
    assert (cache.segments, cache.held_bytes, reused(cache, [1, 1])) == (0, 0, 0)
    assert cache.report().evictions == 2


@pytest.mark.parametrize(
    ("attention", "block_length", "expected"),
    [
        ("block-causal", 4, MIN_SEGMENT),
        ("block-causal", 24, 48),
        ("block-causal", 64, 64),
        ("causal-encoder", 256, MIN_SEGMENT),
        ("encoder-block", 32, None),
    ],
)
def test_segments_end_where_no_position_sees_beyond(
    attention: Attention, block_length: int, expected: int | None
) -> None:
    spec = replace(random_denoiser().spec, attention=attention, block_length=block_length)
    assert segment_length(spec) == expected


@dataclass
class Mirror:
    """What an index has said, told independently of how it works."""

    whole: bool
    """Prompts are one piece each."""
    ids: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By key: the whole beginning that ends with the piece."""
    used: dict[int, int] = field(default_factory=dict)
    """By key: the operation that used it last."""
    held: set[int] = field(default_factory=set)

    def beginnings(self, prompt: tuple[int, ...]) -> list[int]:
        """Keys of the kept beginnings of a prompt, itself included."""
        length = {key: len(ids) for key, ids in self.ids.items()}
        begins = [key for key, ids in self.ids.items() if prompt[: length[key]] == ids]
        return [key for key in begins if not self.whole or length[key] == len(prompt)]

    def leaves(self) -> set[int]:
        """Keys that no kept beginning continues."""
        above = {k for key, ids in self.ids.items() for k in self.beginnings(ids) if k != key}
        return self.ids.keys() - above

    def positions(self) -> int:
        """Positions kept, each once."""
        return sum(
            len(ids) - max((len(self.ids[k]) for k in self.beginnings(ids) if k != key), default=0)
            for key, ids in self.ids.items()
        )

    def use(self, prompt: tuple[int, ...], operation: int) -> None:
        for key in self.beginnings(prompt):
            self.used[key] = operation


PROMPTS = st.lists(st.integers(0, 1), max_size=4).map(tuple)
KINDS = st.sampled_from(["take", "keep", "keep", "release"])
OPERATIONS = st.lists(st.tuples(KINDS, PROMPTS), max_size=60)


@settings(max_examples=300)
@given(OPERATIONS, st.integers(0, 7), st.sampled_from([1, 1, 2, None]))
def test_any_history_keeps_the_rules(
    operations: list[tuple[str, tuple[int, ...]]], room: int, segment: int | None
) -> None:
    """The bound is never passed; what is found is a true beginning and the longest one kept; what
    goes is a leaf, not in use, and of those the one used longest ago."""
    cache, mirror = index(room, segment), Mirror(whole=segment is None)
    for number, (operation, prompt) in enumerate(operations):
        if operation == "release":
            cache.release()
            mirror.held.clear()
        elif operation == "take":
            pieces = cache.take(array(prompt))
            mirror.use(prompt, number)
            assert [p.begin for p in pieces] == [0, *(p.end for p in pieces)][: len(pieces)]
            assert all(mirror.ids[p.key] == prompt[: p.end] for p in pieces)
            assert len(pieces) == len(mirror.beginnings(prompt))
            mirror.held |= {p.key for p in pieces}
        else:
            _keep_and_check(cache, mirror, prompt, number)
        assert cache.held_bytes <= room * BYTES
        assert cache.held_bytes == mirror.positions() * BYTES
        assert cache.segments == len(mirror.ids)


def _keep_and_check(
    cache: PrefixIndex, mirror: Mirror, prompt: tuple[int, ...], number: int
) -> None:
    pieces, evicted = cache.keep(array(prompt))
    mine = set(mirror.beginnings(prompt))
    for key in evicted:
        free = mirror.leaves() - mirror.held - mine
        assert key in free
        assert mirror.used[key] == min(mirror.used[k] for k in free)
        del mirror.ids[key], mirror.used[key]
    for piece in pieces:
        assert piece.key not in mirror.ids
        mirror.ids[piece.key] = prompt[: piece.end]
        mirror.held.add(piece.key)
    mirror.use(prompt, number)


def cache_of(length: int, seed: int) -> Cache:
    """A row's cache of two groups."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(2, 2, 1, heads, length, 4, generator=generator) for heads in (1, 3))


def test_a_store_returns_what_was_put_piece_after_piece() -> None:
    store, row = PrefixStore(), cache_of(7, 0)
    pieces = [Piece(0, 2, 11), Piece(2, 4, 12), Piece(4, 6, 13)]
    store.put(pieces, row)
    for got, kept in zip(store.get(pieces[:2]), row, strict=True):
        assert torch.equal(got, kept[:, :, :, :, :4])


def test_a_store_keeps_copies() -> None:
    store, row = PrefixStore(), cache_of(4, 0)
    store.put([Piece(0, 2, 1)], row)
    before = row[0][:, :, :, :, :2].clone()
    row[0].zero_()
    assert torch.equal(store.get([Piece(0, 2, 1)])[0], before)
    assert store.held_bytes == sum(2 * 2 * heads * 2 * 4 * 4 for heads in (1, 3))


def test_dropped_pieces_hold_no_bytes() -> None:
    store = PrefixStore()
    store.put([Piece(0, 2, 1), Piece(2, 4, 2)], cache_of(4, 0))
    store.drop([2, 7])
    assert store.held_bytes == sum(2 * 2 * heads * 2 * 4 * 4 for heads in (1, 3))
    store.clear()
    assert store.held_bytes == 0
