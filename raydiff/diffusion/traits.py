"""What each policy needs of a forward, and whether it revises: what a plan must know of a rule
without loading torch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What is asked of a plan by one policy's rule (`raydiff.diffusion.rules`)."""

    draws: int = 0
    """K: uniform draws a position that it needs beside the candidate's."""
    needs: frozenset[str] = frozenset()
    """Of "margin" and "entropy", those it reads."""
    revises: bool = False
    """Whether it may change or hide what it committed; then nothing streams before the block is
    done, and closed positions are scored too."""


TRAITS: dict[str, Traits] = {
    "quota": Traits(needs=frozenset({"margin", "entropy"}), draws=1),
    "threshold": Traits(),
    "factor": Traits(),
    "entropy_bound": Traits(needs=frozenset({"entropy"}), draws=1),
    "hierarchical": Traits(),
    "credit": Traits(),
    "ancestral": Traits(needs=frozenset({"entropy"}), draws=2),
    "first_hitting": Traits(draws=1),
    "remask": Traits(draws=1, revises=True),
    "edit": Traits(revises=True),
    "flow": Traits(needs=frozenset({"entropy"}), draws=1),
    "speculative": Traits(),
}
"""The token policies by name; "solver" is not a rule but a loop of the engine."""
