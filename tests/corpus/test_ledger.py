"""The ledger has a row of each part, whatever is lost, repeated or written in pieces."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from raydiff.corpus.commit import ShardReport, Totals
from raydiff.corpus.ledger import (
    FILES_OF_A_LEVEL,
    LedgerWriter,
    damaged_files,
    find_rows,
    ledger_files,
    read_ledger,
    shard_table,
)
from raydiff.storage import LocalFolder

from .committing import Killed, WatchedFolder


@pytest.fixture
def folder(tmp_path: Path) -> WatchedFolder:
    folder = WatchedFolder(tmp_path)
    folder.make("ledger")
    return folder


def report(position: int, *, errors: int = 0, finished_s: float = 2.5) -> ShardReport:
    return ShardReport(
        shard_id=f"{position:08d}-0123abcd",
        rows=10 - errors,
        errors=errors,
        totals=Totals(prompt_tokens=100, completion_tokens=position, forwards=3, duplicates=1),
        started_s=1.25,
        finished_s=finished_s,
        error_types={"EmptyDocument": errors} if errors else {},
        part_bytes=50,
        part_checksum="0011223344556677",
    )


def positions(folder: LocalFolder) -> list[int]:
    found: list[int] = shard_table(read_ledger(folder))["position"].to_pylist()
    return found


def test_what_is_noted_can_be_read_in_the_order_of_the_plan(folder: LocalFolder) -> None:
    writer = LedgerWriter(folder)
    for position in (2, 0, 1):
        writer.add(report(position, errors=position))
    writer.flush()
    table = shard_table(read_ledger(folder)).to_pylist()
    assert [row["completion_tokens"] for row in table] == [0, 1, 2]
    assert table[1] == {
        "position": 1,
        "rows": 9,
        "errors": 1,
        "prompt_tokens": 100,
        "completion_tokens": 1,
        "forwards": 3,
        "duplicates": 1,
        "started_s": 1.25,
        "finished_s": 2.5,
        "error_types": '{"EmptyDocument": 1}',
    }


def test_rows_are_written_when_there_are_many_or_when_it_is_time(folder: LocalFolder) -> None:
    now_s = [0.0]
    writer = LedgerWriter(folder, flush_rows=3, flush_after_s=60, clock=lambda: now_s[0])
    writer.add(report(0))
    writer.add(report(1))
    assert positions(folder) == []
    writer.add(report(2))
    assert positions(folder) == [0, 1, 2]
    now_s[0] = 61.0
    writer.add(report(3))
    assert positions(folder) == [0, 1, 2, 3]


def test_files_stay_few_however_long_the_run(folder: LocalFolder) -> None:
    writer = LedgerWriter(folder, flush_rows=1)
    for position in range(FILES_OF_A_LEVEL**2 + 7):
        writer.add(report(position))
        assert len(ledger_files(folder)) < 2 * FILES_OF_A_LEVEL + 1
    assert positions(folder) == list(range(FILES_OF_A_LEVEL**2 + 7))


def test_a_second_row_of_a_part_replaces_the_first(folder: LocalFolder) -> None:
    writer = LedgerWriter(folder, flush_rows=1)
    writer.add(report(0, finished_s=9.0))
    writer.add(report(0, finished_s=4.0))
    assert shard_table(read_ledger(folder))["finished_s"].to_pylist() == [9.0]


def test_a_kill_while_files_are_merged_loses_and_repeats_nothing(folder: WatchedFolder) -> None:
    for kill_at in range(FILES_OF_A_LEVEL, 2 * FILES_OF_A_LEVEL + 2):
        folder.remove("ledger")
        folder.make("ledger")
        folder.changes, folder.kill_at = 0, kill_at
        writer = LedgerWriter(folder, flush_rows=1)
        noted = 0
        try:
            for position in range(FILES_OF_A_LEVEL):
                writer.add(report(position))
                noted += 1
        except Killed:
            pass
        folder.kill_at = None
        assert positions(folder) == list(range(FILES_OF_A_LEVEL))


def test_a_store_that_refuses_costs_a_delay_only(
    folder: WatchedFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writer = LedgerWriter(folder, flush_rows=2)

    def refuse(name: str, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folder, "put", refuse)
        writer.add(report(0))
        writer.add(report(1))
    assert "The ledger cannot be written now" in caplog.text
    assert positions(folder) == []
    writer.flush()
    assert positions(folder) == [0, 1]


def test_a_part_finds_the_row_with_its_counts(folder: LocalFolder) -> None:
    writer = LedgerWriter(folder)
    for position in range(50):
        writer.add(report(position, errors=position % 3))
    writer.flush()
    ledger = read_ledger(folder)
    table = {
        "first": np.array([7, 7, 99]),
        "last": np.array([7, 7, 99]),
        "rows": np.array([9, 8, 10]),
        "errors": np.array([1, 2, 0]),
    }
    found = find_rows(ledger, table).tolist()
    assert found[1:] == [-1, -1]
    assert ledger.slice(found[0], 1)["first"].to_pylist() == [7]


def test_a_flipped_bit_is_noticed_or_changes_nothing(folder: LocalFolder) -> None:
    writer = LedgerWriter(folder)
    for position in range(20):
        writer.add(report(position, errors=position % 2))
    writer.flush()
    (name,) = ledger_files(folder)
    content, rows = folder.read(name), read_ledger(folder)
    noticed = 0
    for index in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[index] ^= 1
        folder.put(name, bytes(flipped))
        if damaged_files(folder) == [name]:
            noticed += 1
            assert read_ledger(folder).num_rows == 0
        else:
            assert read_ledger(folder).equals(rows)
    assert noticed > 100


def test_a_shard_takes_some_twenty_bytes(folder: LocalFolder) -> None:
    random_ = random.Random(0)
    writer = LedgerWriter(folder)
    for position in range(20_000):
        totals = Totals(
            prompt_tokens=random_.randrange(20_000, 40_000),
            completion_tokens=random_.randrange(2_000, 4_000),
            forwards=random_.randrange(300, 400),
        )
        writer.add(
            ShardReport(
                shard_id=f"{position:08d}-0123abcd",
                rows=256,
                errors=0,
                totals=totals,
                started_s=position + random_.random(),
                finished_s=position + 20 + random_.random(),
                part_bytes=random_.randrange(20_000, 30_000),
                part_checksum=random_.randbytes(8).hex(),
            )
        )
    writer.flush()
    writer.replace(read_ledger(folder))
    (entry,) = folder.entries("ledger")
    assert entry.size_bytes / 20_000 < 30
