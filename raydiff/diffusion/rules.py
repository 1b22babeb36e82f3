"""The policies of `Decoding` as rules from a view to a change.

Each reads the view's per-row parameters and calls one pure function of this package. Shapes: R
rows, W positions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from raydiff.decoding import CHOICES
from raydiff.diffusion import ancestral, commit, edit, flow, remask
from raydiff.diffusion.posterior import uniform_tokens
from raydiff.diffusion.ranking import perturb
from raydiff.diffusion.speculative import confirmed
from raydiff.diffusion.stopping import settled
from raydiff.diffusion.traits import TRAITS
from raydiff.diffusion.view import Change, Rule, View


def _commit(view: View, commit_RW: Tensor) -> Change:
    open_RW = view.open & ~commit_RW
    return Change(
        tokens=torch.where(commit_RW, view.candidates, view.tokens),
        open=open_RW,
        final=~open_RW.any(dim=1),
    )


def _quota(view: View) -> Change:
    """LLaDA, Dream: the `at_least` best by the row's score."""
    never_R = torch.full_like(view.time, float("inf"))
    return _commit(view, commit.commit_mask(_score(view), view.open, view.at_least, never_R))


def _score(view: View) -> Tensor:
    """What ranks positions under quota: confidence, margin, negative entropy or chance."""
    draws = view.uniforms.shape[1]
    by_chance = view.uniforms[:, 0] if draws else torch.zeros_like(view.confidence)
    scores_RSW = torch.stack((view.confidence, view.margin, -view.entropy, by_chance), dim=1)
    kind_R = view.settings["score"].long()
    score_RW = scores_RSW.gather(1, kind_R[:, None, None].expand(-1, 1, scores_RSW.shape[2]))[:, 0]
    if not draws:
        return score_RW
    by_chance_R = kind_R == _place("score", "random")
    temperature_R = view.settings["score_temperature"].masked_fill(by_chance_R, 0)
    return perturb(score_RW, temperature_R, by_chance)


def _threshold(view: View) -> Change:
    """Fast-dLLM: all at the threshold. Also dInfer's credit rule, whose confidence is boosted."""
    threshold_R = view.settings["threshold"]
    mask_RW = commit.commit_mask(view.confidence, view.open, view.at_least, threshold_R)
    return _commit(view, mask_RW)


def _factor(view: View) -> Change:
    mask_RW = commit.factor_mask(view.confidence, view.open, view.at_least, view.settings["factor"])
    return _commit(view, mask_RW)


def _hierarchical(view: View) -> Change:
    mask_RW = commit.hierarchical_mask(
        view.confidence,
        view.open,
        view.at_least,
        view.settings["threshold"],
        view.settings["low_threshold"],
    )
    return _commit(view, mask_RW)


def _entropy_bound(view: View) -> Change:
    bound_R = view.settings["entropy_bound"]
    if view.noise == "uniform":
        one_R = torch.ones_like(view.at_least)
        accepted_RW = commit.entropy_mask(view.entropy, view.open, one_R, bound_R)
        canvas_RW = torch.where(accepted_RW, view.candidates, _noise(view, 0))
        return _canvas(view, canvas_RW, view.best)
    mask_RW = commit.entropy_mask(view.entropy, view.open, view.at_least, bound_R)
    return _stop(view, _commit(view, mask_RW))


def _ancestral(view: View) -> Change:
    if view.noise == "uniform":
        canvas_RW = ancestral.denoise_uniform(
            view.tokens,
            view.candidates,
            view.time,
            view.next_time,
            view.uniforms[:, 1],
            _noise(view, 0),
            view.vocab_size,
        )
        return _canvas(view, canvas_RW, view.candidates)
    mask_RW = ancestral.unmask(view.open, view.time, view.next_time, view.uniforms[:, 0])
    return _stop(view, _commit(view, mask_RW))


def _first_hitting(view: View) -> Change:
    return _commit(view, ancestral.first_hitting(view.open, view.uniforms[:, 0]))


def _flow(view: View) -> Change:
    jump_RW = flow.jumps(view.time, view.next_time, view.uniforms[:, 0])
    if view.noise == "uniform":
        canvas_RW = torch.where(jump_RW, view.candidates, view.tokens)
        return _canvas(view, canvas_RW, view.candidates)
    return _stop(view, _commit(view, jump_RW & view.open))


def _canvas(view: View, canvas_RW: Tensor, result_RW: Tensor) -> Change:
    """The next canvas of uniform noise, where nothing is committed before the last step; then,
    or when the row stops early, `result_RW` or the most likely tokens are final."""
    last_R = view.next_time <= 0
    tokens_RW = torch.where(last_R[:, None], result_RW, canvas_RW)
    return _stop(
        view,
        Change(
            tokens=torch.where(view.open, tokens_RW, view.tokens),
            open=view.open & ~last_R[:, None],
            final=last_R,
        ),
    )


def _stop(view: View, change: Change) -> Change:
    """The change, or the most likely tokens of rows that may stop early."""
    stop_R = settled(
        view.best, view.previous_best, view.entropy, view.open, view.settings["stop_entropy"]
    )
    stop_RW = stop_R[:, None] & view.open
    return Change(
        tokens=torch.where(stop_RW, view.best, change.tokens),
        open=change.open & ~stop_RW,
        final=change.final | stop_R,
    )


def _noise(view: View, draw: int) -> Tensor:
    return uniform_tokens(view.uniforms[:, draw], view.vocab_size)


def _remask(view: View) -> Change:
    """ReMDM: the row's own kind of hiding; the block is done at time 0."""
    shares, hide_RW = _hiding(view)
    commit_RW, hidden_RW = remask.step(
        view.open, view.revisable, shares, hide_RW, view.uniforms[:, 0]
    )
    tokens_RW = torch.where(commit_RW, view.candidates, view.tokens)
    return Change(
        tokens=tokens_RW.masked_fill(hidden_RW, view.mask_id),
        open=(view.open & ~commit_RW) | hidden_RW,
        final=view.next_time <= 0,
    )


def _hiding(view: View) -> tuple[remask.Shares, Tensor]:
    """Masked shares before and after the step, and (R, W) the chance of hiding."""
    s, kind_R = view.settings, view.settings["remask"].long()
    loops_R = kind_R == _place("remask", "loop")
    span = (s["loop_from"], s["loop_to"], s["loop_alpha"])
    shares = remask.Shares(
        torch.where(loops_R, remask.loop_share(view.time, *span), view.time),
        torch.where(loops_R, remask.loop_share(view.next_time, *span), view.next_time),
    )
    looping_R = (view.time <= s["loop_from"]) & (view.time > s["loop_to"])
    capped_R = remask.cap(shares, s["eta"]) * (looping_R | ~loops_R)
    rescales_R = kind_R == _place("remask", "rescale")
    hide_R = torch.where(rescales_R, remask.rescale(shares, s["eta"]), capped_R)
    by_confidence_RW = remask.by_confidence(shares, view.commit_confidence, view.revisable)
    confident_R1 = (kind_R == _place("remask", "conf"))[:, None]
    return shares, torch.where(confident_R1, by_confidence_RW, hide_R[:, None])


def _edit(view: View) -> Change:
    """LLaDA2.1: the threshold rule on open positions, and editing of committed tokens."""
    s = view.settings
    commit_RW = commit.commit_mask(view.confidence, view.open, view.at_least, s["threshold"])
    edit_RW = edit.edit_mask(
        view.tokens, view.candidates, view.confidence, view.revisable, s["edit_threshold"]
    )
    open_RW = view.open & ~commit_RW
    return Change(
        tokens=torch.where(commit_RW | edit_RW, view.candidates, view.tokens),
        open=open_RW,
        final=edit.finished(view.open, open_RW, edit_RW, view.full_steps, s["max_edits"]),
    )


def _speculative(view: View) -> Change:
    """Every second forward verifies the draft of the one before, which is `previous_best`."""
    verifies_R1 = (view.step % 2 == 1)[:, None]
    return _commit(view, confirmed(view.previous_best, view.best, view.open) & verifies_R1)


def _place(setting: str, name: str) -> int:
    return CHOICES[setting].of.index(name)


_APPLY: dict[str, Callable[[View], Change]] = {
    "quota": _quota,
    "threshold": _threshold,
    "factor": _factor,
    "entropy_bound": _entropy_bound,
    "hierarchical": _hierarchical,
    "credit": _threshold,
    "ancestral": _ancestral,
    "first_hitting": _first_hitting,
    "remask": _remask,
    "edit": _edit,
    "flow": _flow,
    "speculative": _speculative,
}

RULES: dict[str, Rule] = {
    policy: Rule(apply=apply, traits=TRAITS[policy]) for policy, apply in _APPLY.items()
}
"""The token policies by name; "solver" is not a rule but a loop of the engine."""
