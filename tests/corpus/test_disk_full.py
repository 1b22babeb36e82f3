"""A full disk is waited for, then the run stops and says what to do."""

from __future__ import annotations

import errno

import pytest

from raydiff.corpus import disk_full
from raydiff.corpus.disk_full import Room
from raydiff.errors import StorageError


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_full, "_PAUSE_S", 0.0)


def write_with(*failures: int) -> tuple[list[int], object]:
    left = list(failures)

    def write() -> str:
        if left:
            raise OSError(left.pop(0), "No space left on device")
        return "written"

    return left, write


def test_a_write_succeeds_once_there_is_room() -> None:
    waits: list[int] = []
    _, write = write_with(errno.ENOSPC, errno.EDQUOT)
    assert Room(on_wait=lambda: waits.append(1)).wait_for(write) == "written"  # type: ignore[arg-type]  # a function
    assert len(waits) == 2


def test_a_disk_that_stays_full_ends_the_run_with_a_remedy() -> None:
    _, write = write_with(*[errno.ENOSPC] * 1000)
    with pytest.raises(StorageError, match=r"No space left.*make room.*same command"):
        Room(patience_s=0.0).wait_for(write)  # type: ignore[arg-type]  # a function


def test_other_troubles_are_not_waited_for() -> None:
    left, write = write_with(errno.EACCES, errno.EACCES)
    with pytest.raises(PermissionError):
        Room().wait_for(write)  # type: ignore[arg-type]  # a function
    assert len(left) == 1
