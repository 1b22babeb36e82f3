"""Replicas follow the work, measured in seconds of it, and do not flap."""

from __future__ import annotations

import ast
import math
import pickle
from dataclasses import fields, replace
from pathlib import Path

import pytest
from ray import cloudpickle

from raydiff.config import AutoscalingSettings
from raydiff.serve import autoscaling
from raydiff.serve.autoscaling import INTERACTIVE, BacklogPolicy, Memory, Rules, Seen, decide
from tests.serve.fleet import Fleet, by_chance, clients

SETTINGS = AutoscalingSettings(down_after_s=60.0)
RULES = Rules(**SETTINGS.model_dump(exclude={"policy", "stats_interval_s"}))
QUIET = Seen(
    now_s=1000.0,
    target=4,
    interactive=0.0,
    batch=0.0,
    calls=0.0,
    queued_calls=0.0,
    rate=100.0,
    done_per_s=0.0,
    informed=True,
)
LONG_AGO = Memory(rate=100.0, work_per_call=10.0, at_s=999.0, needs=((0.0, 4),))


def target(seen: Seen, memory: Memory = LONG_AGO) -> int:
    return decide(seen, RULES, memory)[0]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param({"interactive": 400.0, "calls": 9.0}, 4, id="at the target: enough"),
        pytest.param({"interactive": 401.0, "calls": 9.0}, 5, id="above it: one more"),
        pytest.param({"batch": 12_000.0, "calls": 9.0}, 4, id="batch work may wait for longer"),
        pytest.param({"batch": 12_001.0, "calls": 9.0}, 5, id="but not for ever"),
        pytest.param(
            {"interactive": 300.0, "batch": 11_800.0, "calls": 9.0}, 5, id="batch waits for both"
        ),
        pytest.param({"interactive": 9e9, "calls": 9.0}, 12, id="by at most max_step at once"),
        pytest.param({"informed": False, "rate": 0.0}, 4, id="no report yet: as before"),
        pytest.param(
            {"queued_calls": 2000.0, "interactive": 0.0}, 7, id="calls that handles hold count too"
        ),
        pytest.param(
            {"interactive": 200.0, "calls": 9.0, "rate": 25.0}, 4,
            id="a replica with few rows is no slower for it",
        ),
    ],
)  # fmt: skip
def test_more_replicas_where_a_lane_waits_too_long(seen: dict[str, float], expected: int) -> None:
    assert target(replace(QUIET, **seen)) == expected  # type: ignore[arg-type]


def test_no_two_additions_within_the_cooldown() -> None:
    busy = replace(QUIET, interactive=2000.0, calls=9.0)
    just_now = replace(LONG_AGO, up_s=QUIET.now_s - RULES.up_cooldown_s + 1)
    assert target(busy, just_now) == 4
    assert target(replace(busy, now_s=busy.now_s + 1), just_now) > 4


def test_fewer_only_when_fewer_have_been_enough_for_long() -> None:
    light = replace(QUIET, interactive=150.0, calls=3.0)
    before = replace(LONG_AGO, needs=((light.now_s - RULES.down_after_s + 1, 2),))
    assert target(light, before) == 4
    assert target(replace(light, now_s=light.now_s + 1), before) == 2
    in_between = replace(before, needs=((900.0, 2), (960.0, 4), (970.0, 2)))
    assert target(light, in_between) == 4


def test_not_below_what_the_work_being_done_needs() -> None:
    enough = replace(QUIET, interactive=50.0, calls=3.0, done_per_s=270.0)
    memory = replace(LONG_AGO, needs=((0.0, 1),))
    assert target(enough, memory) == 4


def test_a_fleet_that_never_worked_leaves_too_and_one_of_unknown_speed_stays() -> None:
    fresh = Memory(needs=((0.0, 0),))
    unknown = replace(QUIET, rate=0.0)
    assert target(unknown, fresh) == 0
    assert target(replace(unknown, calls=1.0), fresh) == 4


def test_zero_only_without_any_work() -> None:
    idle = replace(LONG_AGO, needs=((0.0, 0),))
    assert target(QUIET, idle) == 0
    assert target(replace(QUIET, calls=1.0), replace(idle, needs=((0.0, 1),))) == 1


def test_one_to_forty_to_one_clients_without_flapping() -> None:
    fleet = Fleet(SETTINGS)
    fleet.run(30, clients(1))
    assert max(fleet.counts) == 1
    fleet.run(120, clients(40))
    assert fleet.counts[-1] > 3
    assert fleet.backlog_s[-1] <= SETTINGS.interactive_target_s
    fleet.run(240, clients(1))
    assert fleet.counts[-1] == 1
    assert fleet.turns() == 1


def test_a_spike_is_worked_off_and_its_replicas_leave_once() -> None:
    fleet = Fleet(SETTINGS)
    fleet.run(360, by_chance(lambda s: 60.0 if 30 <= s < 50 else 1.0, seed=1))
    assert fleet.turns() == 1
    assert max(fleet.counts) > 4
    assert fleet.counts[-1] == 1
    assert max(fleet.backlog_s[-360:]) < SETTINGS.interactive_target_s


def test_a_ramp_is_followed() -> None:
    fleet = Fleet(SETTINGS)
    fleet.run(400, by_chance(lambda s: 2.0 + s / 8, seed=2))
    offered = 52 * fleet.forwards * fleet.forward_s / fleet.rows
    assert offered <= fleet.counts[-1] <= 2 * offered
    assert fleet.turns() <= 2
    late = fleet.backlog_s[-400:]
    assert sum(late) / len(late) < SETTINGS.interactive_target_s


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("interval_s", [2.0, 10.0])
def test_a_noisy_load_does_not_make_it_flap(seed: int, interval_s: float) -> None:
    fleet = Fleet(SETTINGS.model_copy(update={"stats_interval_s": interval_s}))
    fleet.run(480, by_chance(lambda s: 25.0 + 8 * math.sin(s / 7), seed=seed))
    assert fleet.turns() <= 1
    assert max(fleet.backlog_s[-480:]) < 2 * SETTINGS.interactive_target_s


def test_batch_work_scales_from_zero_and_back() -> None:
    fleet = Fleet(SETTINGS, low=0, lane=autoscaling.BATCH, forwards=170.0)
    fleet.run(150, clients(400))
    assert fleet.counts[0] == 1
    assert max(fleet.counts) > 4
    fleet.run(600, clients(0))
    assert fleet.in_flight() == 0
    assert fleet.counts[-1] == 0
    assert fleet.turns() == 1


def test_a_cold_start_holds_requests_until_a_replica_is_there() -> None:
    fleet = Fleet(SETTINGS, low=0, lane=INTERACTIVE, start_s=30.0)
    fleet.run(20, lambda s, _: 3 if s == 0 else 0)
    assert (fleet.in_flight(), fleet.counts[-1]) == (3, 1)
    fleet.run(20, lambda s, _: 0)
    assert fleet.in_flight() == 0


def test_the_settings_are_the_rules_by_name() -> None:
    own = {f.name for f in fields(Rules)}
    assert own == set(AutoscalingSettings.model_fields) - {"policy", "stats_interval_s"}


def test_the_policy_travels_to_a_controller_that_lacks_raydiff() -> None:
    tree = ast.parse(Path(autoscaling.__file__).read_text(encoding="utf-8"))
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in imported if name and name.startswith("raydiff")]
    cloudpickle.register_pickle_by_value(autoscaling)
    try:
        policy = pickle.loads(cloudpickle.dumps(BacklogPolicy))
    finally:
        cloudpickle.unregister_pickle_by_value(autoscaling)
    again = policy(**SETTINGS.model_dump(exclude={"policy", "stats_interval_s"}))
    assert again.max_step == SETTINGS.max_step
