"""The scores of one text."""

from __future__ import annotations

import pytest

from raydiff.bench.evaluation.overlap import Rouge
from raydiff.bench.evaluation.scores import METRICS, QUALITY, score

DOCUMENT = "A small web server, written in C. It serves static files."


def test_every_metric_has_a_value_or_is_undefined() -> None:
    for text in ("web server in C", "", "server"):
        assert score(DOCUMENT, text, "a web server", Rouge().score).keys() == METRICS.keys()


def test_a_text_with_a_reference() -> None:
    found = score(DOCUMENT, "Small web server", "a web server", Rouge().score)
    assert found["rouge1"] == pytest.approx(2 / 3)
    assert found["coverage"] == 1
    assert found["density"] == 3
    assert found["novel_2"] == 0
    assert found["length_ratio"] == pytest.approx(3 / 11)
    assert found["reference_length_ratio"] == 1
    assert found["empty"] == 0


@pytest.mark.parametrize("reference", [None, "", " … "])
def test_without_a_reference_there_is_no_rouge(reference: str | None) -> None:
    found = score(DOCUMENT, "web server", reference, Rouge().score)
    assert found["rougeL"] is None
    assert found["reference_length_ratio"] is None
    assert found["coverage"] == 1


def test_an_empty_text_has_rouge_0_and_no_rates() -> None:
    found = score(DOCUMENT, "  ", "a web server", Rouge().score)
    assert (found["empty"], found["rougeL"], found["length_ratio"]) == (1, 0, 0)
    assert found["coverage"] is None
    assert found["distinct_1"] is None


def test_settings_are_judged_by_scores_that_lie_between_0_and_1() -> None:
    text = "web web web server"
    found = score(DOCUMENT, text, "web server", Rouge().score)
    values = [found[name] for name in QUALITY]
    assert all(value is not None and 0 <= value <= 1 for value in values)
    assert {"rougeL", "coverage"} <= set(QUALITY)
