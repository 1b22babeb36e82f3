"""How many positions each denoising step commits."""

from __future__ import annotations


def quotas(positions: int, steps: int) -> tuple[int, ...]:
    """Spread `positions` over `steps` as evenly as whole numbers allow, the larger first.

    Source: LLaDA (Nie et al. 2025), Algorithm 4: a linear schedule commits an equal share at
    each step. Steps that would commit nothing are left out, so the result has
    min(positions, steps) entries, each at least 1.
    """
    base, extra = divmod(positions, steps)
    shares = (base + 1 if step < extra else base for step in range(steps))
    return tuple(share for share in shares if share > 0)
