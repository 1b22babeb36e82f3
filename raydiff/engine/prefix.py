"""Prefix index: which beginnings of prompts have their keys and values kept, for any request to
reuse. Exact where the attention pattern lets a beginning be encoded without what follows it.
Knows no torch: `PrefixStore` keeps the tensors.

A prompt is cut into segments, each a node of a tree under the segment before it. A node is found
by comparing token ids, so that no two prompts are ever confused.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from raydiff.engine.frame import Ints
from raydiff.request import PrefixStats
from raydiff.spec import ModelSpec

MIN_SEGMENT = 32
"""Tokens of a segment at least; shorter ones would cost more to copy than they save."""

USUAL_PART = 8
"""One part in so many of the memory budget, where the settings name no number."""

Missing = tuple[int, bytes]
"""The segment that a prompt lacks first: the number of the node above it and its token ids."""

_ROOT = 0


def segment_length(spec: ModelSpec) -> int | None:
    """Tokens of a segment; `None`: a prompt is one piece, reused only by identical prompts.

    Attention decides: a segment may not depend on what follows it.
    """
    if spec.attention == "block-causal":
        return -(-MIN_SEGMENT // spec.block_length) * spec.block_length
    return MIN_SEGMENT if spec.attention == "causal-encoder" else None


@dataclass(frozen=True, order=True)
class Piece:
    """Positions [begin, end) of a prompt, kept under a key."""

    begin: int
    end: int
    key: int


@dataclass(kw_only=True)
class _Node:
    key: int
    parent: int
    ids: bytes
    size: int
    """Bytes of its keys and values."""
    children: int = 0
    in_use: bool = False
    """By a plan that is about to run."""


class PrefixIndex:
    """A tree of segments, bounded in bytes; the one used longest ago goes first, leaves before
    the nodes above them, and never one in use.
    """

    def __init__(
        self, capacity_bytes: int, bytes_per_position: int, segment_length: int | None
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.held_bytes = 0
        self._counts: Counter[str] = Counter()
        self._bytes_per_position = bytes_per_position
        self._segment_length = segment_length
        self._by_ids: dict[Missing, _Node] = {}
        # A node is marked as used after all nodes below it, so the first is always a leaf.
        self._by_age: OrderedDict[int, _Node] = OrderedDict()
        self._in_use: list[_Node] = []
        self._last_key = _ROOT

    @property
    def segments(self) -> int:
        """How many are kept."""
        return len(self._by_age)

    def take(self, ids: Ints) -> tuple[Piece, ...]:
        """The kept segments that begin `ids`, in order, in use until `release`."""
        found = list(self._known(ids))
        reused = found[-1][0].end if found else 0
        self._counts.update(lookups=1, hits=bool(found), reused_tokens=reused)
        for _, node in found:
            self._hold(node)
        self._use([node for _, node in found])
        return tuple(piece for piece, _ in found)

    def keep(self, ids: Ints) -> tuple[tuple[Piece, ...], tuple[int, ...]]:
        """Make room for the segments of `ids` that are not kept, as far as they fit.

        Returns the pieces to store, in use until `release`, and the keys to drop before.
        """
        path = [node for _, node in self._known(ids)]
        pieces: list[Piece] = []
        evicted: list[int] = []
        for begin, end in list(self._spans(len(ids)))[len(path) :]:
            size = (end - begin) * self._bytes_per_position
            tip = path[-1] if path else None
            if not self._make_room(size, tip, evicted):
                break
            path.append(self._add(tip, ids[begin:end].tobytes(), size))
            pieces.append(Piece(begin, end, path[-1].key))
        self._use(path)
        return tuple(pieces), tuple(evicted)

    def known(self, ids: Ints) -> int:
        """How many tokens at the beginning of `ids` are kept."""
        return max((piece.end for piece, _ in self._known(ids)), default=0)

    def missing(self, ids: Ints) -> Missing | None:
        """The first segment of `ids` that is not kept but could be; `None`: there is none."""
        known = list(self._known(ids))
        spans = list(self._spans(len(ids)))[len(known) :]
        if not spans or self._size(spans[0]) > self.capacity_bytes:
            return None
        begin, end = spans[0]
        return (known[-1][1].key if known else _ROOT, ids[begin:end].tobytes())

    def release(self) -> None:
        """The plan has run: what it took or kept is no longer in use."""
        for node in self._in_use:
            node.in_use = False
        self._in_use.clear()

    def clear(self) -> None:
        """Forget all segments."""
        self._counts["evictions"] += self.segments
        self.held_bytes = 0
        for held in (self._by_ids, self._by_age, self._in_use):
            held.clear()

    def halve(self) -> None:
        """Memory ran short: what is kept was too much."""
        self.clear()
        self.capacity_bytes //= 2

    def report(self) -> PrefixStats:
        """What happened since the last report."""
        counts, self._counts = self._counts, Counter()
        return PrefixStats(
            lookups=counts["lookups"],
            hits=counts["hits"],
            reused_tokens=counts["reused_tokens"],
            evictions=counts["evictions"],
            held_bytes=self.held_bytes,
        )

    def _spans(self, length: int) -> Iterator[tuple[int, int]]:
        """Whole segments of a prompt."""
        size = self._segment_length or max(1, length)
        return zip(range(0, length - size + 1, size), range(size, length + 1, size), strict=True)

    def _size(self, span: tuple[int, int]) -> int:
        return (span[1] - span[0]) * self._bytes_per_position

    def _known(self, ids: Ints) -> Iterator[tuple[Piece, _Node]]:
        above = _ROOT
        for begin, end in self._spans(len(ids)):
            node = self._by_ids.get((above, ids[begin:end].tobytes()))
            if node is None:
                return
            above = node.key
            yield Piece(begin, end, node.key), node

    def _hold(self, node: _Node) -> None:
        node.in_use = True
        self._in_use.append(node)

    def _use(self, path: list[_Node]) -> None:
        for node in reversed(path):
            self._by_age.move_to_end(node.key)

    def _add(self, above: _Node | None, ids: bytes, size: int) -> _Node:
        self._last_key += 1
        parent = above.key if above else _ROOT
        node = _Node(key=self._last_key, parent=parent, ids=ids, size=size)
        self._by_ids[parent, ids] = self._by_age[node.key] = node
        self.held_bytes += size
        self._hold(node)
        if above:
            above.children += 1
        return node

    def _make_room(self, size: int, tip: _Node | None, evicted: list[int]) -> bool:
        """Evict until `size` bytes fit, but never `tip`, under which they are to be kept."""
        if size > self.capacity_bytes:
            return False
        while self.held_bytes + size > self.capacity_bytes:
            free = (n for n in self._by_age.values() if not n.children and not n.in_use)
            oldest = next((node for node in free if node is not tip), None)
            if oldest is None:
                return False
            self._remove(oldest)
            evicted.append(oldest.key)
        return True

    def _remove(self, node: _Node) -> None:
        del self._by_ids[node.parent, node.ids]
        del self._by_age[node.key]
        self.held_bytes -= node.size
        self._counts["evictions"] += 1
        if node.parent != _ROOT:
            self._by_age[node.parent].children -= 1


def index_for(
    spec: ModelSpec, bytes_per_value: int, asked_bytes: int | None, budget_bytes: int
) -> PrefixIndex | None:
    """The index of an engine that may take `budget_bytes`; `None` where nothing is to be kept.

    Its size is what was asked for, else an eighth where different prompts can share a beginning.
    A model without an exact cache has nothing to keep.
    """
    length = segment_length(spec)
    if asked_bytes is None:
        asked_bytes = 0 if length is None else budget_bytes // USUAL_PART
    kept = min(asked_bytes, budget_bytes)
    if spec.cache == "none" or kept == 0:
        return None
    return PrefixIndex(kept, spec.cache_bytes_per_position(bytes_per_value), length)


def leaders(index: PrefixIndex, prompts: Sequence[Ints]) -> list[int]:
    """Which prompts to encode now: all but those whose first missing segment an earlier one lacks
    too. They are encoded next, when it is there.
    """
    claimed: set[Missing] = set()
    chosen = []
    for i, prompt in enumerate(prompts):
        missing = index.missing(prompt)
        if missing is None or missing not in claimed:
            chosen.append(i)
        if missing is not None:
            claimed.add(missing)
    return chosen
