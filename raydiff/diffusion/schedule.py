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


def timestep_quotas(positions: int, steps: int, eps: float = 1e-3) -> tuple[int, ...]:
    """Spread `positions` over `steps` by Dream's times, which go from 1 to `eps` evenly.

    A step from t to s commits int(m (1 - s/t)) of the m positions left, the last step all of
    them. m is the row's own count (Dream's code takes the batch's mean). Steps that commit nothing
    are left out: they would repeat the forward before. The sum is `positions`.
    """
    shares, left = [], positions
    for step in range(steps - 1):
        time = 1 - (1 - eps) * step / steps
        next_time = 1 - (1 - eps) * (step + 1) / steps
        shares.append(int(left * (1 - next_time / time)))
        left -= shares[-1]
    return tuple(share for share in (*shares, left) if share > 0)
