"""Figures of a case, from what came of its requests."""

from __future__ import annotations

import pytest

from raydiff.bench.serving.figures import Turn, case_record, comparisons, percentile, percentiles
from raydiff.bench.serving.loads import Outcome
from raydiff.bench.serving.settings import Case


def _outcome(index: int, due: float, done: float, **fields: object) -> Outcome:
    values = {"prompts": 1, "sent_s": due, "first_s": None, "status": 200, "tokens": 10, **fields}
    return Outcome(index=index, due_s=due, done_s=done, **values)  # type: ignore[arg-type]


def _turn(outcomes: list[Outcome], warm_up: int = 0, cpu_s: float = 0.0) -> Turn:
    return Turn(
        outcomes=tuple(outcomes),
        warm_up=warm_up,
        processes=1,
        generator_cpu_s=cpu_s,
        rows_per_forward=4.0,
        busy_s=1.0,
        cpu_ms_per_request={"gateway": 2.0},
    )


def _steady(service_s: float, count: int = 10) -> Turn:
    """One client whose requests follow each other."""
    return _turn([_outcome(i, i * service_s, (i + 1) * service_s) for i in range(count)])


def test_percentiles_lie_between_neighbours() -> None:
    ordered = [float(i) for i in range(101)]
    assert percentile(ordered, 95) == 95
    assert percentile([1.0, 2.0], 50) == 1.5
    assert percentile([3.0], 99) == 3.0
    assert percentiles([2.0, 1.0])["max_s"] == 2.0
    assert percentiles([]) == {}


def test_the_warm_up_is_in_no_percentile_and_no_success_rate() -> None:
    slow = _outcome(0, 0.0, 50.0, status=500, tokens=0)
    rest = [_outcome(i, float(i), i + 1.0) for i in range(1, 6)]
    record = case_record(Case(contender="http", clients=1), [_turn([slow, *rest], warm_up=1)])
    assert record["requests"] == 5
    assert record["success_rate"] == 1
    assert record["total"]["max_s"] == 1


def test_rates_are_of_the_time_in_which_the_load_is_even() -> None:
    """From the first request counted to the last one sent, not to the last straggler's end."""
    outcomes = [_outcome(i, float(i), i + 0.5) for i in range(10)]
    outcomes.append(_outcome(10, 10.0, 100.0))
    turn = _turn(outcomes, warm_up=2)
    assert turn.seconds == 8
    assert turn.requests_per_s == 1
    assert turn.output_tokens_per_s == 10


def test_what_is_sent_all_at_once_counts_to_its_end() -> None:
    turn = _turn([_outcome(i, 0.0, i + 1.0) for i in range(4)])
    assert turn.seconds == 4
    assert turn.requests_per_s == 1


def test_failures_lower_the_success_rate_and_are_in_no_latency() -> None:
    failed = _outcome(9, 9.0, 60.0, status=429, tokens=0)
    good = [_outcome(i, float(i), i + 1.0) for i in range(9)]
    record = case_record(Case(contender="http", clients=1), [_turn([*good, failed])])
    assert record["success_rate"] == 0.9
    assert record["statuses"] == {"200": 9, "429": 1}
    assert record["total"]["max_s"] == 1


def test_time_to_first_text_and_lateness_count_from_when_a_request_was_due() -> None:
    late = _outcome(0, 0.0, 3.0, sent_s=1.0, first_s=1.5)
    record = case_record(Case(contender="http", rate_per_s=1.0), [_turn([late], cpu_s=0.6)])
    assert record["first_text"]["p50_s"] == 1.5
    assert record["generator"]["late"]["max_s"] == 1.0
    assert record["generator"]["cpu"] == pytest.approx(0.2)
    assert record["per_output_token"]["p50_s"] == pytest.approx(0.3)


def test_contenders_are_compared_under_the_same_load_only() -> None:
    turns = {
        Case(contender="engine", clients=1): [_steady(0.1)],
        Case(contender="http", clients=1): [_steady(0.2)],
        Case(contender="http", clients=16): [_steady(0.2)],
    }
    (only,) = comparisons(turns)
    assert (only["of"], only["over"], only["clients"]) == ("http", "engine", 1)
    assert only["tokens_ratio"] == pytest.approx(0.5)
    assert only["added_ms"] == pytest.approx(100)


def test_a_ratio_is_the_median_over_rounds_of_pairs_in_turn() -> None:
    """A machine that slows down for one round slows both, and the ratio stays."""
    turns = {
        Case(contender="engine", clients=1): [_steady(0.1), _steady(1.0), _steady(0.1)],
        Case(contender="http", clients=1): [_steady(0.2), _steady(2.0), _steady(0.2)],
    }
    assert comparisons(turns)[0]["tokens_ratio"] == pytest.approx(0.5)
