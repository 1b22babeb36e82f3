"""A session: one fleet, one fault after another under load, each judged by its callers."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..cluster import wait_until
from .faults import APP_ARGS, COUNTS, FAULTS, HANG_LIMIT_S, Fault
from .fleet import Fleet
from .load import MODEL, Call, Load, outcomes

PATIENT, IMPATIENT = 6, 4
AFTERWARDS_S = 4.0
ERROR_LIMIT_S = 5.0
"""A caller without retries learns of a fault within this, unless the fault is a silence."""
RETRIABLE = {"408", "409", "429", "cut"}


@dataclass(frozen=True, kw_only=True)
class Drill:
    """What came of one drill."""

    number: int
    kind: str
    seed: int
    did: str
    seconds: float
    patient: str
    impatient: str
    longest_s: float
    faults: tuple[str, ...]

    def __str__(self) -> str:
        verdict = "FAILED" if self.faults else "ok"
        return (
            f"{self.number:3d} {self.kind:14s} {verdict:6s} {self.seconds:5.1f} s  {self.did}\n"
            f"      with retries: {self.patient}; without: {self.impatient}; "
            f"longest {self.longest_s:.1f} s"
        ) + "".join(f"\n      ! {fault}" for fault in self.faults[:8])


def run(
    kinds: Sequence[str] | None, count: int | None, seed: int | None, report: Path | None
) -> int:
    """Drill each kind in turn, in an order of chance; status 1 when a rule was broken."""
    seed = random.SystemRandom().randrange(10**9) if seed is None else seed
    rng = random.Random(seed)
    chosen = [fault for fault in FAULTS if kinds is None or fault.name in kinds]
    folder = Path(tempfile.mkdtemp(prefix="raydiff-serving-drills-"))
    print(f"seed {seed}, logs in {folder}", flush=True)
    fleet, drills = Fleet(folder), []
    try:
        fleet.start()
        fleet.deploy(APP_ARGS)
        wait_until(lambda: fleet.is_whole(COUNTS), "the app")
        expected: dict[str, str] = {}
        asyncio.run(Load(url=fleet.url, expected=expected).learn())
        order = [f for _ in range(count or len(chosen)) for f in rng.sample(chosen, len(chosen))]
        for number, fault in enumerate(order[: count or len(chosen)], 1):
            drill = asyncio.run(_drill(number, fault, fleet, expected, rng.randrange(10**9)))
            drills.append(drill)
            print(drill, flush=True)
    finally:
        fleet.stop()
    failed = sum(bool(drill.faults) for drill in drills)
    print(f"{len(drills)} drills, {failed} failed; seed {seed}")
    if report is not None:
        report.write_text(json.dumps([asdict(drill) for drill in drills], indent=1))
    return 1 if failed else 0


async def _drill(
    number: int, fault: Fault, fleet: Fleet, expected: dict[str, str], seed: int
) -> Drill:
    rng = random.Random(seed)
    began_s = time.monotonic()
    load = Load(url=fleet.url, expected=expected)
    running = asyncio.create_task(load.run(PATIENT, IMPATIENT, rng.randrange(10**9)))
    await asyncio.sleep(rng.uniform(1.5, 4.0))
    trouble: list[str] = []
    did = "nothing"
    struck_s = time.monotonic()
    try:
        did = await asyncio.to_thread(fault.strike, fleet, rng)
        await asyncio.to_thread(wait_until, lambda: fleet.is_whole(COUNTS), "the whole fleet")
    except Exception as error:  # whatever went wrong is the drill's result
        trouble.append(f"{type(error).__name__}: {error}")
    await asyncio.sleep(AFTERWARDS_S)
    load.stop()
    await running
    trouble += judge(fault, load.calls, struck_s)
    try:
        trouble += await asyncio.to_thread(_leaks, fleet)
    except Exception as error:
        trouble.append(f"describe: {type(error).__name__}: {error}")
    return Drill(
        number=number,
        kind=fault.name,
        seed=seed,
        did=did,
        seconds=time.monotonic() - began_s,
        patient=outcomes([call for call in load.calls if call.patient]),
        impatient=outcomes([call for call in load.calls if not call.patient]),
        longest_s=max((call.seconds for call in load.calls), default=0.0),
        faults=tuple(trouble),
    )


def judge(fault: Fault, calls: Sequence[Call], struck_s: float) -> list[str]:
    """The rules that calls broke, in words."""
    found = []
    for call in calls:
        who = (
            f"{'stream' if call.stream else 'call'} {'with' if call.patient else 'without'} retries"
        )
        how = f"{who}: {call.outcome} after {call.seconds:.1f} s ({call.detail})"
        if call.outcome in ("wrong", "silent"):
            found.append(how)
        elif call.outcome == "broken" or (call.outcome == "cut" and call.stream):
            # with retries, only a stream that had begun may come to the caller like this
            found += [] if fault.breaks else [how]
        elif call.outcome != "ok":
            found += [how] if call.patient or not fault.cuts else _refusal(call, how)
        if call.outcome not in ("ok", "wrong") and not call.patient:
            since_s = call.began_s + call.seconds - max(call.began_s, struck_s)
            limit_s = HANG_LIMIT_S + ERROR_LIMIT_S if "hang" in fault.name else ERROR_LIMIT_S
            found += [f"late: {how}"] if since_s > limit_s else []
    if not any(call.began_s > struck_s and call.outcome == "ok" for call in calls):
        found.append("no call succeeded after the fault")
    return found


def _refusal(call: Call, how: str) -> list[str]:
    """A refusal must be one that clients retry."""
    retriable = call.outcome in RETRIABLE or call.outcome.startswith("5")
    return [] if retriable else [how]


def _leaks(fleet: Fleet) -> list[str]:
    """What replicas still hold when nobody calls."""
    deadline_s = time.monotonic() + 5.0
    while True:
        held = [replica["requests"] for replica in fleet.describe(MODEL)]
        if not any(held):
            return []
        if time.monotonic() > deadline_s:
            return [f"requests that nobody waits for: {held}"]
