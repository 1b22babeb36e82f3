"""Answers to the chunks of a document become one: merged in a tree, joined, or by vote.

A level of the tree puts neighbouring summaries together, as many as fit one prompt, in as few
prompts as possible and those of like length; a summary that is alone in its group goes up as it
is. The last level that is allowed takes all that are left: each gets an equal share of one
prompt, what a short one leaves free going to the longer ones, and is cut to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raydiff.errors import DocumentTooLong
from raydiff.text import DocumentPrompts, Tokenizer
from raydiff.text.chunking import beginning

SEPARATOR = "\n"
_LEAST_SHARE = 4
"""Tokens that a summary has in the last prompt at least; if there is not room for that, some
summaries are left out, evenly over the document."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Neighbouring summaries, and the prompt that merges them; one alone needs none."""

    text: str
    prompt: tuple[int, ...] | None


@dataclass(frozen=True, kw_only=True)
class Level:
    """One level of a merge."""

    groups: tuple[Group, ...]
    truncated: bool = False
    """Whether summaries were cut or left out to fit."""


def next_level(prompts: DocumentPrompts, texts: Sequence[str], *, last: bool) -> Level:
    """How two or more summaries come together; one group where `last`, or where no neighbours
    fit a prompt."""
    sizes = [len(ids) for ids in prompts.tokenizer.encode_batch(list(texts))]
    joint = len(prompts.tokenizer.encode(f"a{SEPARATOR}a")) - 2 * len(prompts.tokenizer.encode("a"))
    groups = _fitting_groups(prompts, texts, sizes, max(0, joint))
    if len(groups) == 1 or (len(groups) < len(texts) and not last):
        return Level(groups=tuple(groups))
    return _squeezed(prompts, texts, sizes, max(0, joint))


def _fitting_groups(
    prompts: DocumentPrompts, texts: Sequence[str], sizes: Sequence[int], joint: int
) -> list[Group]:
    room = prompts.max_text_tokens
    while True:
        groups: list[Group] = []
        excess = 0
        for begin, end in grouped(sizes, room, joint):
            joined = SEPARATOR.join(texts[begin:end])
            prompt = prompts.render(joined) if end - begin > 1 else None
            excess = max(excess, len(prompt or ()) - prompts.limit)
            groups.append(Group(text=joined, prompt=prompt))
        if excess <= 0:
            return groups
        # Tokens differ across the joints: rare, and by a few.
        room -= excess


def grouped(sizes: Sequence[int], room: int, joint: int = 0) -> list[tuple[int, int]]:
    """Neighbours in groups: none above `room`, unless it is alone in its group; as few groups as
    possible, the largest of them as small as possible.

    `joint` is what stands between two in a group.
    """
    fewest = len(_filled(sizes, room, joint))
    low, high = max(sizes, default=0), max(room, max(sizes, default=0))
    while low < high:
        middle = (low + high) // 2
        if len(_filled(sizes, middle, joint)) <= fewest:
            high = middle
        else:
            low = middle + 1
    return _filled(sizes, min(low, room), joint)


def _filled(sizes: Sequence[int], room: int, joint: int) -> list[tuple[int, int]]:
    groups: list[tuple[int, int]] = []
    begin, held = 0, 0
    for place, size in enumerate(sizes):
        if place > begin and held + joint + size > room:
            groups.append((begin, place))
            begin, held = place, size
        else:
            held += size + (joint if place > begin else 0)
    return [*groups, (begin, len(sizes))] if sizes else []


def _squeezed(
    prompts: DocumentPrompts, texts: Sequence[str], sizes: Sequence[int], joint: int
) -> Level:
    most = max(1, (prompts.max_text_tokens + joint) // (_LEAST_SHARE + joint))
    count = min(len(texts), most)
    kept = [place * len(texts) // count for place in range(count)]
    room = prompts.max_text_tokens - joint * (count - 1)
    share = even_share([sizes[place] for place in kept], room)
    pieces = [
        texts[place]
        if sizes[place] <= share
        else _beginning(prompts.tokenizer, texts[place], share)
        for place in kept
    ]
    joined = SEPARATOR.join(piece.strip() for piece in pieces if piece.strip())
    return Level(groups=(Group(text=joined, prompt=prompts.cut(joined)),), truncated=True)


def even_share(sizes: Sequence[int], room: int) -> int:
    """The largest share such that all sizes, cut to it, have at most `room` together."""
    left, waiting = room, sorted(sizes)
    for place, size in enumerate(waiting):
        share = left // (len(waiting) - place)
        if size > share:
            return max(0, share)
        left -= size
    return max(sizes, default=0)


def _beginning(tokenizer: Tokenizer, text: str, most: int) -> str:
    if most < 1:
        return ""
    try:
        return beginning(tokenizer, text, most)
    except DocumentTooLong:
        return ""


def joined_answers(answers: Sequence[str], gaps: Sequence[str]) -> str:
    """The answers to chunks in order, with the white space that stood between the chunks."""
    return "".join(a + gap for a, gap in zip(answers, gaps, strict=True)).strip()


def elected(labels: Sequence[str], probabilities: Sequence[float]) -> tuple[str, float]:
    """The label of a document from those of its chunks, and its probability.

    Each chunk votes for its label with the probability that the model gave it; the label with the
    largest sum wins, of several the one that comes first. Its probability is that sum over the
    number of chunks: of a single chunk, the chunk's own.
    """
    votes: dict[str, float] = {}
    for label, probability in zip(labels, probabilities, strict=True):
        votes[label] = votes.get(label, 0.0) + probability
    winner = max(votes, key=votes.__getitem__)
    return winner, votes[winner] / len(labels)
