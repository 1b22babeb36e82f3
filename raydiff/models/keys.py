"""From the keys of a checkpoint to places in a module, by a family's rules; no torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from raydiff.families.family import Config, KeyRule


@dataclass(frozen=True)
class Place:
    """Where a tensor of a checkpoint, or some of its rows, belongs."""

    target: str
    """Key of the module's tensor."""
    rows: tuple[int, int] | None = None
    """The rows of the checkpoint's tensor that belong there; `None`: all."""
    rows_in_all: int | None = None
    """Rows that the checkpoint's tensor must have, where it is split."""
    expert: int | None = None
    """Index along the target's first dimension, where it stacks experts."""
    part: tuple[int, int] = (0, 1)
    """(i, n): part i of n along the (unstacked) target's first dimension."""


class KeyMap:
    """Applies the first rule that matches a key; a key that none matches is kept."""

    def __init__(self, rules: Sequence[KeyRule], config: Config) -> None:
        self._rules = [(re.compile(rule.pattern), rule) for rule in rules]
        self._config = config

    def places(self, key: str) -> tuple[Place, ...]:
        """Where the tensor of a key goes, row after row; nowhere if it is to be ignored."""
        for pattern, rule in self._rules:
            match = pattern.fullmatch(key)
            if match is not None:
                return self._apply(rule, match)
        return (Place(key),)

    def _apply(self, rule: KeyRule, match: re.Match[str]) -> tuple[Place, ...]:
        targets = [match.expand(target) for target in rule.targets]
        expert = None if rule.stack is None else int(match[rule.stack])
        if len(targets) < 2:
            return tuple(Place(target, expert=expert, part=rule.part) for target in targets)
        assert rule.sizes is not None, f"rule {rule.pattern!r} splits a tensor without sizes"
        sizes = rule.sizes(self._config)
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        spans = zip([0, *ends], ends, strict=False)
        return tuple(
            Place(target, rows=span, rows_in_all=ends[-1], expert=expert, part=rule.part)
            for target, span in zip(targets, spans, strict=True)
        )
