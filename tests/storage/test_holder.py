"""A holder is taken for dead only when that is certain."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

from raydiff.storage.holder import Holder

ME = Holder.current(90)


def test_a_record_tells_who_holds() -> None:
    found = Holder.parse(ME.record(7))
    assert found == ME
    assert str(found) == f"process {os.getpid()} on {ME.host} (since {ME.since})"


def test_every_renewal_is_another_object() -> None:
    assert ME.record(1) != ME.record(2)


def test_what_is_no_record_has_no_holder() -> None:
    for record in (b"", b"{}", b"[]", b"null", b'{"host": "a", "renewals": 1}'):
        assert Holder.parse(record) is None


def test_a_living_process_is_not_dead() -> None:
    assert not ME.is_known_dead()


def test_a_process_that_has_ended_is_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    ended = replace(ME, pid=process.pid)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert ended.is_known_dead()  # while it is a zombie
    process.wait()
    assert ended.is_known_dead()


def test_a_pid_that_is_used_again_is_another_process() -> None:
    assert replace(ME, born="1").is_known_dead()


def test_of_other_machines_nothing_is_known() -> None:
    for machine in ("another boot", ""):
        assert not replace(ME, machine=machine, pid=2**22 - 1, born="1").is_known_dead()
