"""What became of the input since it was planned: nothing, or files were added."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from raydiff.config import CorpusSettings
from raydiff.corpus.cutting import plan_items
from raydiff.corpus.files import Changes, some_names
from raydiff.corpus.ids import count_repeated_ids
from raydiff.corpus.inputs import Inputs, file_digest
from raydiff.corpus.planning import Plan, PlanBuilder, save_files, save_plan
from raydiff.corpus.runs import SUCCESS_NAME
from raydiff.errors import RunConflict
from raydiff.storage import Entry, Folder

_THREADS = 16


def reconcile(folder: Folder, plan: Plan, inputs: Inputs, settings: CorpusSettings) -> Plan:
    """The plan, with shards for added files where these are to be appended.

    A file is opened only if its version changed and its size did not: one that was copied or
    touched is the same file, one that was rewritten is not.

    Raises:
        RunConflict: files were removed or changed, or added but not to be appended; the message
            names them.
    """
    listing = inputs.listing.table
    changes = plan.files.changes(listing)
    rewritten = _rewritten(plan, inputs, changes.rewritten)
    _require_kept(folder, changes, rewritten, append=settings.append)
    if len(changes.added):
        return _append(folder, plan, inputs, changes.added, settings)
    if len(changes.rewritten):
        plan = replace(plan, files=plan.files.with_versions(listing))
        save_files(folder, plan.files)
    return plan


def _rewritten(plan: Plan, inputs: Inputs, names: pa.Array[Any]) -> list[str]:
    """Those files whose content is not what was planned."""
    planned = plan.files.digests(names)
    with ThreadPoolExecutor(_THREADS) as pool:
        now = pool.map(lambda name: file_digest(inputs, name), planned)
        return [name for name, digest in zip(planned, now, strict=True) if planned[name] != digest]


def _require_kept(folder: Folder, changes: Changes, rewritten: list[str], *, append: bool) -> None:
    groups: dict[str, list[str]] = {
        "removed": _sorted(changes.removed),
        "changed": sorted([*_sorted(changes.resized), *rewritten]),
        "added": [] if append else _sorted(changes.added),
    }
    found = [f"input files {what}: {some_names(names)}" for what, names in groups.items() if names]
    if not found:
        return
    remedy = "Choose another output directory, or restore the input."
    if groups["added"] and len(found) == 1:
        remedy = "Give --append to plan them too, or choose another output directory."
    raise RunConflict(
        f"output: {folder.uri} holds a run over another input: {'; '.join(found)}. {remedy}",
        "output",
    )


def _sorted(names: pa.Array[Any]) -> list[str]:
    return sorted(str(name) for name in names.to_pylist())


def _append(
    folder: Folder, plan: Plan, inputs: Inputs, added: pa.Array[Any], settings: CorpusSettings
) -> Plan:
    """Plan added files as further shards; shards that were planned keep their ids."""
    entries = _entries(inputs.listing.table, added)
    items = plan_items(inputs, entries, settings.shard_rows, first_position=len(plan.shards))
    builder = PlanBuilder(replace(plan, files=plan.files.with_versions(inputs.listing.table)))
    files = builder.add_all(items).files()
    shards = builder.shards(files)
    appended = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": len(files) - len(plan.files),
        "shards": len(shards) - len(plan.shards),
        "rows": shards.rows - plan.rows,
    }
    longer = replace(
        plan,
        shards=shards,
        files=files,
        repeated_ids=count_repeated_ids(inputs, files),
        appends=(*plan.appends, appended),
    )
    if appended["shards"]:
        folder.delete(SUCCESS_NAME)
    save_plan(folder, longer)
    return longer


def _entries(listing: pa.Table, names: pa.Array[Any]) -> Iterator[Entry]:
    chosen = listing.filter(pc.is_in(listing["name"], value_set=names.cast(pa.string())))
    for batch in chosen.to_batches(max_chunksize=8192):
        for row in batch.to_pylist():
            yield Entry(**row)
