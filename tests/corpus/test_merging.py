"""Answers to chunks become one answer."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.corpus.merging import (
    elected,
    even_share,
    grouped,
    joined_answers,
    next_level,
)
from raydiff.text import DocumentPrompts, Tokenizer

sizes = st.lists(st.integers(0, 40), max_size=60)


@pytest.fixture(scope="module")
def prompts(toy_model: str) -> DocumentPrompts:
    """Room for 64 bytes."""
    return DocumentPrompts.of(Tokenizer.load(toy_model), None, 16)


def cost(sizes: list[int], joint: int) -> int:
    return sum(sizes) + joint * max(0, len(sizes) - 1)


def fewest(sizes: list[int], room: int, joint: int) -> int:
    """By trying all ways to cut; the slow truth."""
    best = [0, *[len(sizes)] * len(sizes)]
    for end in range(1, len(sizes) + 1):
        best[end] = min(
            best[begin] + 1
            for begin in range(end)
            if end - begin == 1 or cost(sizes[begin:end], joint) <= room
        )
    return best[-1]


@given(sizes=sizes, room=st.integers(1, 60), joint=st.integers(0, 3))
def test_groups_are_neighbours_as_few_as_can_be_and_within_the_room(
    sizes: list[int], room: int, joint: int
) -> None:
    groups = grouped(sizes, room, joint)
    assert [i for begin, end in groups for i in range(begin, end)] == list(range(len(sizes)))
    assert all(end - begin == 1 or cost(sizes[begin:end], joint) <= room for begin, end in groups)
    assert len(groups) == fewest(sizes, room, joint)


@given(count=st.integers(1, 60), room=st.integers(1, 20))
def test_groups_of_equal_texts_are_even(count: int, room: int) -> None:
    groups = grouped([1] * count, room)
    assert max(end - begin for begin, end in groups) == math.ceil(count / len(groups))


@given(sizes=st.lists(st.integers(0, 40), min_size=1), room=st.integers(0, 500))
def test_a_share_is_the_largest_that_fits(sizes: list[int], room: int) -> None:
    share = even_share(sizes, room)
    cut = sum(min(size, share) for size in sizes)
    assert cut <= room
    assert cut == sum(sizes) or sum(min(size, share + 1) for size in sizes) > room


answers = st.lists(st.text("abc de.", min_size=1, max_size=50), min_size=2, max_size=40)


@settings(deadline=None)
@given(texts=answers, depth=st.integers(1, 4))
def test_a_merge_ends_within_its_depth(
    prompts: DocumentPrompts, texts: list[str], depth: int
) -> None:
    """The model answers each prompt with as much as it was given."""
    for number in range(1, depth + 1):
        level = next_level(prompts, texts, last=number == depth)
        asked = [group.prompt for group in level.groups if group.prompt is not None]
        assert asked
        assert all(len(prompt) <= prompts.limit for prompt in asked)
        assert len(level.groups) < len(texts)
        assert level.truncated <= (len(level.groups) == 1)
        texts = [group.text for group in level.groups]
        if len(texts) == 1:
            return
    raise AssertionError("still several")


def test_summaries_are_merged_with_their_neighbours_in_order(prompts: DocumentPrompts) -> None:
    texts = [f"{n} " * 9 for n in range(10, 16)]
    level = next_level(prompts, texts, last=False)
    assert [group.text for group in level.groups] == [
        "\n".join(texts[i : i + 2]) for i in (0, 2, 4)
    ]
    assert not level.truncated


def test_a_summary_alone_in_its_group_goes_up_as_it_is(prompts: DocumentPrompts) -> None:
    level = next_level(prompts, ["a" * 60, "b" * 20, "c" * 20], last=False)
    assert [group.prompt is None for group in level.groups] == [True, False]


def test_the_last_level_gives_every_summary_an_even_share(prompts: DocumentPrompts) -> None:
    texts = [letter * 50 for letter in "abcdef"]
    level = next_level(prompts, texts, last=True)
    (group,) = level.groups
    shares = [len(piece) for piece in group.text.split("\n")]
    assert level.truncated
    assert [piece[0] for piece in group.text.split("\n")] == list("abcdef")
    assert max(shares) - min(shares) <= 1
    assert sum(shares) + 5 > 64 - 6


def test_what_a_short_summary_leaves_goes_to_the_long_ones(prompts: DocumentPrompts) -> None:
    level = next_level(prompts, ["a" * 50, "b", "c" * 50], last=True)
    assert [len(piece) for piece in level.groups[0].text.split("\n")] == [30, 1, 30]


def test_too_many_summaries_are_thinned_out_over_the_whole_document(
    prompts: DocumentPrompts,
) -> None:
    level = next_level(prompts, [f"summary {n:03d}" for n in range(500)], last=True)
    assert level.truncated
    (group,) = level.groups
    assert group.prompt is not None
    assert len(group.prompt) <= prompts.limit
    assert len(group.text.split("\n")) > 8


def test_summaries_too_long_to_meet_are_cut_at_once(prompts: DocumentPrompts) -> None:
    level = next_level(prompts, ["a" * 60, "b" * 60], last=False)
    assert (len(level.groups), level.truncated) == (1, True)


def test_rewritten_chunks_are_joined_with_what_stood_between_them() -> None:
    assert joined_answers(["One.", "Two.", "Three."], ["\n\n", " ", "\n"]) == "One.\n\nTwo. Three."


def test_the_label_with_the_largest_sum_of_probabilities_wins() -> None:
    """However many chunks have another; its probability is its sum over all chunks."""
    assert elected(["a", "a", "b"], [0.3, 0.3, 0.9]) == ("b", pytest.approx(0.3))
    assert elected(["a", "b", "a"], [0.5, 0.9, 0.5]) == ("a", pytest.approx(1 / 3))
    assert elected(["x"], [0.8]) == ("x", 0.8)


def test_of_labels_with_the_same_sum_the_first_wins() -> None:
    assert elected(["b", "a", "a", "b"], [0.5] * 4) == ("b", 0.25)
