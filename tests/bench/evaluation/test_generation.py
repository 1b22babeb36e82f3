"""Passes over a sample: what they give, and that settings take turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from raydiff.bench.evaluation.generation import WARM_UP_DOCUMENTS, Measured, Passes, take_turns
from raydiff.bench.evaluation.settings import Setting, parse_setting, resolve_settings
from raydiff.bench.sample import Document
from raydiff.config import CorpusSettings
from raydiff.errors import ClusterError
from raydiff.families import load_spec
from raydiff.text import Tokenizer

from .standin import POISON, StandIn

TEXTS = ["a library to read files", "tools for the web", f"data of {POISON} files", "many tools"]
DOCUMENTS = [
    Document(file="a.parquet", row=i, text=text, reference=None, run=0)
    for i, text in enumerate(TEXTS)
]


@pytest.fixture
def generator(tiny_checkpoint: Path) -> StandIn:
    return StandIn(tiny_checkpoint)


@pytest.fixture
def passes(tiny_checkpoint: Path, generator: StandIn) -> Passes:
    return Passes(
        generator=generator,
        settings=CorpusSettings(input="", output="", model=str(tiny_checkpoint), max_attempts=2),
        tokenizer=Tokenizer.load(tiny_checkpoint),
    )


@pytest.fixture
def settings(tiny_checkpoint: Path) -> list[Setting]:
    given = [parse_setting("steps=1"), parse_setting("steps=2"), parse_setting("steps=4")]
    return resolve_settings(given, load_spec(tiny_checkpoint))


async def test_outcomes_are_in_the_order_of_the_documents(
    passes: Passes, settings: list[Setting]
) -> None:
    found = await passes.run(DOCUMENTS, settings[1])
    assert [outcome.text for outcome in found.outcomes] == [
        "a library",
        "tools for",
        None,
        "many tools",
    ]
    assert found.outcomes[2].error_type == "EngineError"
    assert found.outcomes[0].totals.forwards == 2
    assert found.documents_per_s == pytest.approx(3 / found.seconds)


async def test_a_service_that_is_gone_ends_the_evaluation_without_its_words(
    passes: Passes, settings: list[Setting], generator: StandIn
) -> None:
    generator.down = True
    with pytest.raises(ClusterError, match="All 2 documents failed with EngineError") as caught:
        await passes.run(DOCUMENTS[:2], settings[0])
    assert "text" not in str(caught.value)


async def test_long_documents_are_cut_and_merged_as_in_a_job(
    passes: Passes, settings: list[Setting]
) -> None:
    long = Document(file="a", row=0, text="a small library of data " * 400, reference=None, run=0)
    (outcome,) = (await passes.run([long], settings[1])).outcomes
    assert outcome.text == "a small"
    assert outcome.totals.forwards > 2 * 2


async def test_settings_take_turns_in_changing_order(
    passes: Passes, settings: list[Setting], generator: StandIn
) -> None:
    said: list[str] = []
    measured = await take_turns(passes, DOCUMENTS, settings, rounds=6, progress=said.append)
    assert [len(one.rounds) for one in measured] == [6, 6, 6]
    per_setting = 6 * len(DOCUMENTS) + WARM_UP_DOCUMENTS
    # the poison is sent again each time
    assert set(generator.documents_by_steps.values()) == {per_setting + 7}
    turns = [line.split(": ")[1] for line in said]
    rounds = [tuple(turns[i : i + 3]) for i in range(0, 18, 3)]
    assert all(set(turn) == {"steps=1", "steps=2", "steps=4"} for turn in rounds)
    assert len(set(rounds)) > 1


async def test_speeds_are_medians_and_changed_texts_are_told(
    passes: Passes, settings: list[Setting]
) -> None:
    one = Measured(setting=settings[0])
    for steps in (settings[0], settings[0], settings[1]):
        one.rounds.append(await passes.run(DOCUMENTS[:2], steps))
    speeds = sorted(round_.output_tokens_per_s for round_ in one.rounds)
    assert one.output_tokens_per_s == speeds[1]
    assert one.same_text == 0
    one.rounds.pop()
    assert one.same_text == 1
