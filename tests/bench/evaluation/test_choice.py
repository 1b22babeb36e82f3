"""Which setting is named."""

from __future__ import annotations

from raydiff.bench.evaluation.choice import Candidate, choose, front

GOOD = (0.6, 0.4, 0.5, 0.7) * 50


def candidate(name: str, speed: float, *, loss: float = 0.0) -> Candidate:
    return Candidate(name=name, quality=tuple(q - loss for q in GOOD), speed=speed)


def test_the_fastest_within_the_loss_is_named() -> None:
    candidates = [candidate("slow", 1.0), candidate("quick", 3.0, loss=0.01)]
    candidates += [candidate("hasty", 9.0, loss=0.1)]
    found = choose(candidates, max_loss=0.02, reference=None, seed=0)
    assert (found.reference, found.fastest) == ("slow", "quick")
    assert [v.within for v in found.verdicts] == [True, True, False]
    assert round(found.verdicts[1].loss, 6) == 0.01


def test_noise_does_not_decide() -> None:
    """As good on average, but on four documents that differ wildly."""
    slow = Candidate(name="slow", quality=(0.5, 0.5, 0.5, 0.5), speed=1.0)
    noisy = Candidate(name="noisy", quality=(1.0, 0.0, 0.9, 0.1), speed=5.0)
    found = choose([slow, noisy], max_loss=0.01, reference="slow", seed=0)
    assert found.fastest == "slow"


def test_losses_are_against_the_setting_asked_for() -> None:
    candidates = [candidate("best", 1.0), candidate("usual", 2.0, loss=0.05)]
    candidates += [candidate("quick", 4.0, loss=0.055)]
    found = choose(candidates, max_loss=0.01, reference="usual", seed=0)
    assert (found.reference, found.fastest) == ("usual", "quick")
    assert found.verdicts[0].loss < 0


def test_one_setting_alone_is_its_own_reference() -> None:
    found = choose([candidate("only", 2.0)], max_loss=0.0, reference=None, seed=0)
    assert (found.reference, found.fastest) == ("only", "only")
    assert found.verdicts[0].on_front


def test_the_front_has_what_nothing_beats_in_both() -> None:
    points = {"a": (1.0, 0.9), "b": (2.0, 0.8), "c": (1.5, 0.7), "d": (2.0, 0.5)}
    assert front(points) == ["a", "b"]
    assert front({"a": (1.0, 1.0), "twin": (1.0, 1.0)}) == ["a", "twin"]
