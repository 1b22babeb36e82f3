"""Streams that show the whole canvas after each forward."""

from __future__ import annotations

from itertools import pairwise

from raydiff.engine import Engine
from raydiff.engine.snapshots import UNDECIDED
from raydiff.request import Decoding, Event
from tests.engine.conftest import MakeEngine
from tests.engine.test_small_models import engine_of


def watch(engine: Engine, decoding: Decoding, *, snapshots: bool = True) -> list[Event]:
    """The events of one stream."""
    engine.submit(engine.request("hello", decoding, stream=True, snapshots=snapshots))
    events: list[Event] = []
    while engine.has_work():
        events += engine.step()
    return events


def snapshots_of(events: list[Event]) -> list[str]:
    return [event.snapshot for event in events if event.snapshot is not None]


def test_each_forward_shows_the_canvas_and_the_last_the_text(engine: Engine) -> None:
    """One character a token: decided ones stand, each undecided one is a shade."""
    events = watch(engine, Decoding(max_tokens=16, steps=8, ignore_eos=True))
    shown = snapshots_of(events)
    last = events[-1].completion
    assert last is not None
    assert len(shown) == last.usage.forwards == 8
    assert [s.count(UNDECIDED) for s in shown] == [14, 12, 10, 8, 6, 4, 2, 0]
    for before, after in pairwise(shown):
        assert all(b in (a, UNDECIDED) for b, a in zip(before, after, strict=True))
    assert shown[-1] == last.text == "".join(event.text for event in events)


def test_a_snapshot_begins_with_the_committed_text(make_engine: MakeEngine) -> None:
    events = watch(make_engine(), Decoding(max_tokens=40, steps=4))
    committed = ""
    for event in events:
        committed += event.text
        assert event.snapshot is not None
        assert event.snapshot.startswith(committed)


def test_watching_changes_neither_text_nor_what_is_committed_when(make_engine: MakeEngine) -> None:
    decoding = Decoding(max_tokens=40, steps=4, seed=1)
    watched = watch(make_engine(), decoding)
    plain = watch(make_engine(), decoding, snapshots=False)
    assert all(event.snapshot is None for event in plain)
    assert [e.text for e in watched if e.text] == [e.text for e in plain if e.text]


def test_no_snapshot_shows_a_stop_string(make_engine: MakeEngine) -> None:
    """Even one that stands in the canvas before the text reaches it."""
    whole = make_engine().generate(["hello"], Decoding(max_tokens=48))[0].text
    stop = whole[37:39]
    events = watch(make_engine(), Decoding(max_tokens=48, stop=(stop,)))
    assert all(stop not in shown for shown in snapshots_of(events))
    assert snapshots_of(events)[-1] == whole[: whole.index(stop)]


def test_random_noise_shows_itself() -> None:
    decoding = Decoding(policy="ancestral", steps=8, temperature=1.0, seed=2)
    shown = snapshots_of(watch(engine_of("tiny-uniform"), decoding))
    assert len(set(shown)) > 4
    assert all(s.count(UNDECIDED) < len(s) / 2 for s in shown)


def test_embeddings_are_undecided_to_the_last() -> None:
    events = watch(engine_of("tiny-diffuseq"), Decoding(seed=3))
    *before, last = snapshots_of(events)
    assert events[-1].completion is not None
    assert last == events[-1].completion.text
    assert before
    assert all(set(shown) == {UNDECIDED} for shown in before)


def test_words_beside_gaps_read_as_they_will() -> None:
    """Pieces of words in the tokenizer's own spelling: what stands of the text stands in it."""
    decoding = Decoding(policy="quota", steps=12, max_tokens=12, ignore_eos=True)
    *before, last = snapshots_of(watch(engine_of("tiny-masked"), decoding))
    assert any(UNDECIDED in shown for shown in before)
    for shown in before:
        assert all(part in last for part in shown.split(UNDECIDED))


def test_what_a_revising_policy_may_still_change_is_shown_but_not_committed() -> None:
    decoding = Decoding(policy="remask", remask="cap", steps=8, seed=1)
    events = watch(engine_of("tiny-masked"), decoding)
    assert [bool(event.text) for event in events][:-1] == [False] * (len(events) - 1)
    assert any(not set(s) <= {UNDECIDED} for s in snapshots_of(events[:-1]))
