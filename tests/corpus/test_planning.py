"""A plan is columns of numbers, comes back from disk as it was, and grows at its end only."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydiff.corpus.plan import FileFacts, Shard, Span, make_shard
from raydiff.corpus.planning import PLAN_NAME, Plan, PlanBuilder, load_plan, save_plan
from raydiff.errors import RunConflict
from raydiff.storage import LocalFolder

Items = list[FileFacts | Shard]


def items(shards_of_files: list[list[int]], *, first: int = 0, prefix: str = "f") -> Items:
    """What a pass over files gives: of each, shards of so many rows; every second file shares its
    last shard with the next one."""
    result: Items = []
    position, waiting = first, tuple[Span, ...]()
    for index, rows in enumerate(shards_of_files):
        name = f"{prefix}{index:03d}"
        for number, count in enumerate(rows):
            span = Span(file=name, row_start=sum(rows[:number]), rows=count, offset=number * 7)
            if number == len(rows) - 1 and index % 2 == 0:
                waiting = (*waiting, span)
            else:
                result.append(make_shard(position, (*waiting, span)))
                position, waiting = position + 1, ()
        result.append(
            FileFacts(name=name, size_bytes=9, version=f"v{index}", rows=sum(rows), digest="d")
        )
    if waiting:
        result.append(make_shard(position, waiting))
    return result


def plan_of(found: Items, before: Plan | None = None) -> Plan:
    builder = PlanBuilder(before).add_all(found)
    files = builder.files()
    return Plan(
        shards=builder.shards(files),
        files=files,
        fingerprint={"seed": 1, "columns": {"text": "text"}},
        repeated_ids=None,
        settings={"input": "in"},
        appends=({"at": "now", "files": 1},),
    )


shards_of_files = st.lists(st.lists(st.integers(1, 300), max_size=5), max_size=6)


@settings(deadline=None, max_examples=50)
@given(shards_of_files)
def test_a_saved_plan_comes_back_whole(tmp_path_factory: object, rows: list[list[int]]) -> None:
    assert isinstance(tmp_path_factory, pytest.TempPathFactory)
    folder = LocalFolder(tmp_path_factory.mktemp("run"))
    found = items(rows)
    plan = plan_of(found)
    save_plan(folder, plan)
    loaded = load_plan(folder)
    assert list(loaded.shards) == [item for item in found if isinstance(item, Shard)]
    assert list(loaded.files) == [item for item in found if isinstance(item, FileFacts)]
    assert loaded.rows == plan.rows == sum(map(sum, rows))
    for name in ("fingerprint", "repeated_ids", "settings", "appends", "layout", "decoding"):
        assert getattr(loaded, name) == getattr(plan, name)


@settings(deadline=None, max_examples=50)
@given(shards_of_files, shards_of_files)
def test_what_is_appended_comes_after_what_was_there(
    old: list[list[int]], new: list[list[int]]
) -> None:
    before = plan_of(items(old))
    found = items(new, first=len(before.shards), prefix="g")
    longer = plan_of(found, before)
    assert longer.shards[: len(before.shards)] == before.shards
    assert list(longer.shards[len(before.shards) :]) == [i for i in found if isinstance(i, Shard)]
    assert [f.name for f in longer.files][: len(before.files)] == [f.name for f in before.files]


def test_files_of_an_append_that_was_killed_do_not_count(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    before = plan_of(items([[10, 20]]))
    save_plan(folder, before)
    saved = folder.read(PLAN_NAME)
    save_plan(folder, plan_of(items([[5]], first=len(before.shards), prefix="g"), before))
    folder.put(PLAN_NAME, saved)
    assert list(load_plan(folder).files) == list(before.files)


def test_a_shard_takes_tens_of_bytes_of_memory_and_fewer_on_disk(tmp_path: Path) -> None:
    shards = 20_000
    lengths = random.Random(0)
    found: Items = []
    row = 0
    for position in range(shards):
        rows = lengths.randint(200, 256)
        group = position // 8
        span = Span(file="a", row_start=row, rows=rows, first_group=group, stop_group=group + 1)
        found.append(make_shard(position, (span,)))
        row += rows
    found.append(FileFacts(name="a", size_bytes=1, version="1", rows=row, digest="d"))
    plan = plan_of(found)
    assert plan.shards.columns.nbytes / shards < 50
    save_plan(LocalFolder(tmp_path), plan)
    assert (tmp_path / PLAN_NAME).stat().st_size / shards < 10


def test_slices_of_shards_stay_lazy_and_equal_lists() -> None:
    plan = plan_of(items([[1, 2, 3, 4], [5, 6]]))
    part = plan.shards[1:3]
    assert (len(part), part.rows) == (2, sum(shard.rows for shard in list(plan.shards)[1:3]))
    assert part == list(plan.shards)[1:3]
    assert part[-1] == list(plan.shards)[2]
    assert not plan.shards[0:0]


@pytest.mark.parametrize("content", [b"", b"PAR1 but not really PAR1"])
def test_a_foreign_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / PLAN_NAME).write_bytes(content)
    with pytest.raises(RunConflict, match="not a raydiff plan"):
        load_plan(LocalFolder(tmp_path))


def test_a_plan_with_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    save_plan(folder, plan_of(items([[5] * 50])))
    content = bytearray(folder.read(PLAN_NAME))
    content[60] ^= 1
    folder.put(PLAN_NAME, bytes(content))
    with pytest.raises(RunConflict, match="not a raydiff plan"):
        load_plan(folder)


def test_a_plan_of_another_version_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = LocalFolder(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("raydiff.corpus.planning.FORMAT", 1)
        save_plan(folder, plan_of(items([[1]])))
    with pytest.raises(RunConflict, match=r"another version of raydiff\. Finish the run with that"):
        load_plan(folder)
