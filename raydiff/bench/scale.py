"""`raydiff bench resume --simulate`: a plan, a listing and a ledger of a million shards.

Nothing is generated and no part is written: the plan and the ledger are made and saved as a run
would, and the listing of the run directory is simulated. Each step tells its time, its size and
how much memory the process has afterwards.
"""

from __future__ import annotations

import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raydiff.bench.report import circumstances
from raydiff.corpus.commit import ShardReport, Totals
from raydiff.corpus.ledger import LedgerWriter, ledger_files, read_ledger, shard_table
from raydiff.corpus.parts import list_parts
from raydiff.corpus.plan import FileFacts, Shard, Span, make_shard
from raydiff.corpus.planning import FILES_NAME, PLAN_NAME, Plan, PlanBuilder, load_plan, save_plan
from raydiff.storage import Entry, LocalFolder

_GROUP_SHARDS = 64
_MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class ScaleBench:
    """Settings of one run."""

    shards: int = 1_000_000
    shard_rows: int = 256
    files: int = 10_000
    """Input files."""
    pending: int = 1_000
    seed: int = 0


class ListedFolder(LocalFolder):
    """A folder that says it has a part for nearly every shard of a plan."""

    def __init__(self, root: Path | str, plan: Plan, pending: int) -> None:
        super().__init__(root)
        self._plan = plan
        self._pending = pending

    def entries(self, under: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        columns = self._plan.shards.columns
        for position in range(len(self._plan.shards) - self._pending):
            rows = int(columns.edges[position + 1] - columns.edges[position])
            name = f"part-{columns.shard_id(position)}-r{rows}-e0.parquet"
            yield Entry(name=name, size_bytes=30_000, version="1")


def run_scale_bench(bench: ScaleBench, progress: Callable[[str], None]) -> dict[str, Any]:
    """Go through the life of a run of many shards; the report has a row for each step."""
    steps: list[dict[str, Any]] = []

    def step(name: str, act: Callable[[], Any], size_of: Callable[[Any], int]) -> Any:
        began_s = time.perf_counter()
        result = act()
        seconds = time.perf_counter() - began_s
        bytes_ = size_of(result)
        steps.append(
            {
                "step": name,
                "seconds": seconds,
                "bytes": bytes_,
                "bytes_per_shard": bytes_ / bench.shards,
                "process_mib": _resident() / _MIB,
            }
        )
        progress(f"{name}: {seconds:.2f} s, {bytes_ / _MIB:,.1f} MiB")
        return result

    before = _resident()
    with tempfile.TemporaryDirectory(prefix="raydiff-scale-") as root:
        folder = LocalFolder(root)
        folder.make("ledger")
        plan = step("build the plan", lambda: _plan(bench), _columns_bytes)
        step(
            "save plan.parquet", lambda: save_plan(folder, plan), lambda _: _size(folder, PLAN_NAME)
        )
        steps.append({"step": "files.parquet", "bytes": _size(folder, FILES_NAME)})
        del plan
        plan = step("load the plan", lambda: load_plan(folder), _columns_bytes)
        listed = ListedFolder(root, plan, bench.pending)
        committed = step(
            "list the parts",
            lambda: list_parts(listed, plan).committed,
            lambda found: sum(c.nbytes for c in found.table.values()) + found.done.nbytes,
        )
        pending = step(
            "planned less committed",
            lambda: committed.pending,
            lambda found: found.positions.nbytes,
        )
        assert len(pending) == bench.pending
        step(
            "write the ledger",
            lambda: _write_ledger(folder, plan, bench),
            lambda _: _ledger(folder),
        )
        ledger = step("read the ledger", lambda: read_ledger(folder), lambda found: found.nbytes)
        step(
            "compact the ledger",
            lambda: LedgerWriter(folder).replace(ledger),
            lambda _: _ledger(folder),
        )
        step("table of the report", lambda: shard_table(ledger), lambda found: found.nbytes)
        return {
            "bench": "scale",
            **circumstances(),
            "run": {
                "shards": bench.shards,
                "documents": plan.rows,
                "files": len(plan.files),
                "ledger_files": len(ledger_files(folder)),
            },
            "steps": steps,
            "process_mib_before": before / _MIB,
            "process_mib_most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


def _plan(bench: ScaleBench) -> Plan:
    builder = PlanBuilder().add_all(_items(bench))
    files = builder.files()
    return Plan(shards=builder.shards(files), files=files, fingerprint={}, repeated_ids=None)


def _items(bench: ScaleBench) -> Iterator[FileFacts | Shard]:
    """Files with many shards each, several in a row group, as of a table cut into files."""
    chance = random.Random(bench.seed)
    edges = [bench.shards * index // bench.files for index in range(bench.files + 1)]
    for index in range(bench.files):
        name = f"year=2026/month={index % 12 + 1:02d}/documents-{index:06d}.parquet"
        row = 0
        for position in range(edges[index], edges[index + 1]):
            group, place = divmod(position - edges[index], _GROUP_SHARDS)
            rows = chance.randint(bench.shard_rows * 9 // 10, bench.shard_rows)
            span = Span(
                file=name,
                row_start=row,
                rows=rows,
                first_group=group,
                stop_group=group + 1,
                skip_rows=place * bench.shard_rows,
            )
            yield make_shard(position, (span,))
            row += rows
        digest = f"{chance.getrandbits(128):032x}"
        yield FileFacts(
            name=name, size_bytes=chance.randrange(2**27), version=digest, rows=row, digest=digest
        )


def _write_ledger(folder: LocalFolder, plan: Plan, bench: ScaleBench) -> None:
    """As a driver does while reports come: a file for a thousand, few files by merging them."""
    chance = random.Random(bench.seed)
    writer = LedgerWriter(folder)
    for position in range(bench.shards):
        failed = int(chance.random() < 0.02)
        rows = int(plan.shards.columns.edges[position + 1] - plan.shards.columns.edges[position])
        writer.add(
            ShardReport(
                shard_id=plan.shards.columns.shard_id(position),
                rows=rows - failed,
                errors=failed,
                totals=Totals(
                    prompt_tokens=chance.randrange(15_000, 30_000),
                    completion_tokens=chance.randrange(2_000, 4_000),
                    forwards=chance.randrange(200, 400),
                ),
                started_s=1.8e9 + position / 50 + chance.random(),
                finished_s=1.8e9 + position / 50 + 20 + 5 * chance.random(),
                error_types={"EmptyDocument": failed} if failed else {},
                part_bytes=chance.randrange(20_000, 40_000),
                part_checksum=f"{chance.getrandbits(64):016x}",
                errors_file=f"errors/errors-{position}-{chance.getrandbits(128):032x}.parquet"
                if failed
                else None,
                errors_bytes=1_500 * failed,
                errors_checksum=f"{chance.getrandbits(64):016x}" if failed else "",
            )
        )
    writer.flush()


def _columns_bytes(plan: Plan) -> int:
    return plan.shards.columns.nbytes + int(plan.files.table.nbytes)


def _size(folder: LocalFolder, name: str) -> int:
    return (folder.root / name).stat().st_size


def _ledger(folder: LocalFolder) -> int:
    return sum(entry.size_bytes for entry in folder.entries("ledger"))


def _resident() -> int:
    """Memory of this process now, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
