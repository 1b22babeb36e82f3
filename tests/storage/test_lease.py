"""Of the drivers aimed at one run directory exactly one works, and a dead one is followed."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from raydiff.errors import RunConflict, StorageError
from raydiff.storage import hold
from raydiff.storage.folder import LEASE_NAME
from raydiff.storage.holder import Holder
from raydiff.storage.s3 import S3Folder

from .conftest import MakeFolder
from .proxy import FaultProxy
from .server import S3Server


def elsewhere(lease_s: float) -> bytes:
    """The lease of a driver on another machine, whose life cannot be seen from here."""
    holder = Holder(
        host="far", pid=1, since="2026-01-01", lease_s=lease_s, machine="other", born="1"
    )
    return holder.record(0)


def wait_until_taken(folder: S3Folder) -> Any:
    """Hold the folder as soon as that is possible; returns what to leave again."""
    for _ in range(100):
        held = hold(folder)
        try:
            held.__enter__()
        except RunConflict:
            time.sleep(0.1)
        else:
            return held
    raise AssertionError("the lease never ended")


def test_a_second_driver_is_refused_and_told_who_the_first_is(make_folder: MakeFolder) -> None:
    with hold(make_folder()) as held:
        with pytest.raises(RunConflict) as caught, hold(make_folder()):
            pass
        held.check()
    me = Holder.current(90)
    for part in (f"process {me.pid} on {me.host}", "since 20", "lease ends in", make_folder().uri):
        assert part in str(caught.value)


def test_a_folder_is_free_as_soon_as_its_driver_ends(make_folder: MakeFolder) -> None:
    for _ in range(2):
        with hold(make_folder()):
            assert make_folder().names() == [LEASE_NAME]
        assert make_folder().names() == []


def test_a_lease_is_renewed_for_as_long_as_it_is_held(make_folder: MakeFolder) -> None:
    with hold(make_folder(lease_s=1)) as held:
        first = make_folder().read(LEASE_NAME)
        time.sleep(2.2)
        with pytest.raises(RunConflict), hold(make_folder()):
            pass
        held.check()
        assert make_folder().read(LEASE_NAME) != first


def test_the_lease_of_a_dead_driver_elsewhere_is_taken_over_when_it_ends(
    make_folder: MakeFolder,
) -> None:
    folder = make_folder()
    dead = elsewhere(lease_s=1)
    folder.put(LEASE_NAME, dead)
    with pytest.raises(RunConflict, match="process 1 on far"), hold(folder):
        pass
    held = wait_until_taken(folder)
    assert folder.read(LEASE_NAME) != dead
    held.__exit__(None, None, None)


def test_exactly_one_contender_takes_over(make_folder: MakeFolder) -> None:
    make_folder().put(LEASE_NAME, elsewhere(lease_s=0))
    time.sleep(2.1)
    start = threading.Barrier(6)
    done = threading.Event()

    def contend(_: int) -> bool:
        start.wait()
        try:
            with hold(make_folder()):
                done.wait()
                return True
        except RunConflict:
            return False

    with ThreadPoolExecutor(6) as pool:
        outcomes = [pool.submit(contend, i) for i in range(6)]
        while sum(outcome.done() for outcome in outcomes) < 5:
            time.sleep(0.05)
        done.set()
    assert sorted(outcome.result() for outcome in outcomes) == [False] * 5 + [True]


def test_a_driver_that_died_on_this_machine_is_followed_at_once(
    make_folder: MakeFolder, credentials: None
) -> None:
    folder = make_folder()
    code = (
        "import os, pickle, sys\n"
        "from raydiff.storage import hold\n"
        f"folder = pickle.loads({pickle.dumps(folder)!r})\n"
        "held = hold(folder)\n"
        "held.__enter__()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert folder.names() == [LEASE_NAME]
    with hold(folder) as held:
        held.check()


def test_a_driver_whose_lease_was_taken_is_told_and_leaves_it_alone(
    make_folder: MakeFolder,
) -> None:
    taken = elsewhere(lease_s=90)
    with hold(make_folder(lease_s=1)) as held:
        make_folder().put(LEASE_NAME, taken)
        time.sleep(1)
        with pytest.raises(RunConflict, match=r"has lost .* to process 1 on far"):
            held.check()
    assert make_folder().read(LEASE_NAME) == taken


def test_a_driver_that_slept_past_its_lease_goes_on_if_nobody_took_it(
    make_folder: MakeFolder, proxy: FaultProxy
) -> None:
    with hold(make_folder(lease_s=1)) as held:
        with proxy.outage():
            time.sleep(2)
        held.check()


def test_a_lease_survives_a_store_that_throttles_and_loses_answers(
    make_folder: MakeFolder, proxy: FaultProxy
) -> None:
    """A renewal whose answer was lost did happen: its repetition must not count as a loss."""
    proxy.slow_down, proxy.lose_answer = 0.2, 0.3
    with hold(make_folder(lease_s=1)) as held:
        for _ in range(20):
            time.sleep(0.15)
            held.check()
    assert proxy.counts["lose_answer"] > 1
    assert make_folder().names() == []


def test_a_lease_is_taken_through_a_store_that_loses_answers(
    make_folder: MakeFolder, proxy: FaultProxy
) -> None:
    """Also while the store is tried for conditional writes."""
    proxy.lose_answer = 0.5
    for _ in range(6):
        with hold(make_folder()) as held:
            held.check()
    assert proxy.counts["lose_answer"] > 6


def test_a_renewal_that_was_given_up_but_got_through_is_no_loss(make_folder: MakeFolder) -> None:
    folder = make_folder(lease_s=1)
    with hold(folder) as held:
        mine = Holder.parse(folder.read(LEASE_NAME))
        assert mine is not None
        folder.put(LEASE_NAME, mine.record(1000))
        time.sleep(1.5)
        held.check()
    assert folder.names() == []


def test_a_lease_left_by_something_else_is_respected_while_it_is_young(
    make_folder: MakeFolder,
) -> None:
    make_folder().put(LEASE_NAME, b"not json")
    with pytest.raises(RunConflict, match="an unknown process"), hold(make_folder(lease_s=5)):
        pass


class _Careless(S3Folder):
    """A store that takes a conditional write for a plain one, as some did."""

    def put_if(self, name: str, content: bytes, etag: str | None) -> str | None:
        self.put(name, content)
        return "etag"


def test_a_store_without_conditional_writes_is_refused(make_folder: MakeFolder) -> None:
    folder = make_folder()
    careless = _Careless(folder.address, folder.storage)
    with pytest.raises(StorageError, match="If-None-Match"), hold(careless):
        pass
    assert folder.names() == []


def test_age_is_measured_by_the_clock_of_the_store(
    make_folder: MakeFolder, server: S3Server
) -> None:
    folder = make_folder()
    folder.put("a", b"")
    assert 0 <= folder.read_version("a").age_s <= 2
    time.sleep(2)
    assert 1 <= folder.read_version("a").age_s <= 5
