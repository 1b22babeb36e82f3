"""`raydiff runs`: looks after run directories. No flags of the run are repeated: they are saved."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from raydiff.cli.corpus_flags import (
    add_store_arguments,
    require_fraction,
    require_gpus,
    store_settings,
)
from raydiff.cli.corpus_run import Options, run_corpus
from raydiff.config import StorageSettings
from raydiff.errors import UsageError, invalid

if TYPE_CHECKING:
    from raydiff.corpus.runs import SavedRun
    from raydiff.corpus.verifying import Verification

DONE, FAULTS = 0, 1
TARGET_MB = 128
_SHOWN_FAULTS = 20
_CHANGEABLE = ("append", "replicas", "workers", "max_failed_fraction", "shared_filesystem")
"""Settings that a resumed run may have otherwise than saved."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and what it can do."""
    parser = subparsers.add_parser(
        "runs",
        help="inspect, resume, compact or verify a run directory",
        description="Inspect, resume, compact or verify a run directory. The run's settings are "
        "saved in it: none of its flags is repeated.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add(actions, "show", "how far a run is, how fast, and what failed", _show)
    _add_resume(_add(actions, "resume", "go on with a run under its saved settings", _resume))
    _add_compact(_add(actions, "compact", "merge small part files", _compact))
    _add_verify(_add(actions, "verify", "check counts, checksums, rows and ids", _verify))


def run(args: argparse.Namespace) -> int:
    """Do it; status 1 when `verify` finds faults or documents of a resumed run failed."""
    return int(args.do(args))


def _add(actions: Any, name: str, help_text: str, do: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=help_text, description=help_text.capitalize() + "."
    )
    parser.add_argument("run_dir", metavar="RUN_DIR", help="a path or an s3:// address")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_store_arguments(parser)
    parser.set_defaults(do=do)
    return parser


def _add_resume(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--append", action="store_true", help="plan files that were added to the input too"
    )
    parser.add_argument("--replicas", type=int, metavar="N", help="model replicas (as saved)")
    parser.add_argument("--workers", type=int, metavar="N", help="feeding processes (as saved)")
    parser.add_argument(
        "--max-failed-fraction",
        type=float,
        metavar="X",
        help="end the run when more of its documents fail (as saved)",
    )
    parser.add_argument(
        "--shared-filesystem",
        action="store_true",
        default=None,
        help="local paths are on a disk that every node of the cluster mounts (as saved)",
    )
    parser.add_argument(
        "--num-gpus", type=float, default=0.0, metavar="X", help="GPUs reserved for a replica (0)"
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="CPU threads of each replica (by the cores)"
    )
    parser.add_argument("--metrics-port", type=int, metavar="N", help="port of the metrics (any)")


def _add_compact(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target-mb",
        type=int,
        default=TARGET_MB,
        metavar="N",
        help=f"size of merged files in MiB ({TARGET_MB}); memory is about three times that",
    )


def _add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rebuild-ledger",
        action="store_true",
        help="write the ledger anew from the parts' own metadata",
    )


def _open(args: argparse.Namespace) -> tuple[SavedRun, StorageSettings]:
    from raydiff.corpus.runs import SavedRun

    storage = store_settings(args)
    return SavedRun.load(args.run_dir, storage), storage


def _show(args: argparse.Namespace) -> int:
    from raydiff.corpus.showing import show

    state = show(_open(args)[0])
    if args.json:
        print(json.dumps(state))
    else:
        print("\n".join(_state_lines(state)))
    return DONE


def _state_lines(state: dict[str, Any]) -> list[str]:
    driver = f", by {state['driver']}" if state["driver"] else ""
    reason = f" ({state['reason']})" if state["reason"] else ""
    share = f"{state['done'] / state['documents']:.1%}" if state["documents"] else "100%"
    lines = [
        f"run         {state['run']}",
        f"status      {state['status']}{driver}{reason}",
        f"input       {state['input']} ({state['files']} files)",
        f"task        {state['task']} with {state['model']}",
        f"documents   {state['done']:,} of {state['documents']:,} ({share}), "
        f"{state['failed']:,} failed, {state['duplicates']:,} copied from equal ones",
        f"shards      {state['committed']:,} of {state['shards']:,} in {state['parts']:,} files, "
        f"{state['part_bytes'] / 2**20:,.1f} MiB",
        f"tokens      {state['prompt_tokens']:,} read, {state['output_tokens']:,} written, "
        f"{state['forwards']:,} forwards",
        f"rate        {state['documents_per_s']:,.1f} documents/s, "
        f"{state['output_tokens_per_s']:,.0f} output tokens/s over the last minutes",
    ]
    if state["left_s"]:
        lines.append(f"left        {state['left_s'] / 3600:,.2f} hours at that rate")
    for kind, count in state["error_types"].items():
        lines.append(f"errors      {kind} {count:,}")
        lines += [
            f"              {e['source_file']}:{e['source_row']}: {e['message']}"
            for e in state["error_examples"].get(kind, ())
        ]
    lines += [
        f"appended    {a['files']} files, {a['rows']} documents at {a['at']}"
        for a in state["appends"]
    ]
    chosen = ", ".join(
        f"{name}={value!r}"
        for name, value in state["settings"].items()
        if name not in ("input", "output", "model")
    )
    return [*lines, f"settings    {chosen or 'the usual ones'}"]


def _resume(args: argparse.Namespace) -> int:
    for name in ("replicas", "threads", "workers"):
        value = getattr(args, name)
        if value is not None and value < 1:
            message = invalid(f"--{name}", expected="an integer of at least 1", got=value)
            raise UsageError(message, name)
    require_fraction(args.max_failed_fraction)
    require_gpus(args.num_gpus)
    saved, storage = _open(args)
    given = {name: getattr(args, name) for name in _CHANGEABLE}
    changes = {name: value for name, value in given.items() if value is not None}
    settings = saved.settings(storage).model_copy(update=changes)
    options = Options(
        threads=args.threads,
        num_gpus=args.num_gpus,
        metrics_port=args.metrics_port,
        as_json=args.json,
    )
    return run_corpus(settings, saved.decoding(), options)


def _compact(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from raydiff.corpus.compacting import compact
    from raydiff.corpus.runs import require_target

    def say(part: Any) -> None:
        print(f"{part.name}  ({part.shards} shards)", file=sys.stderr)

    target = require_target(args.target_mb)
    result = compact(_open(args)[0], target, say)
    if args.json:
        print(json.dumps(asdict(result)))
        return DONE
    print(
        f"{result.parts_before:,} part files are {result.parts_after:,} now; "
        f"{result.bytes_before / 2**20:,.1f} MiB are {result.bytes_after / 2**20:,.1f} MiB"
    )
    if not result.complete:
        print("The run is not finished; `raydiff runs resume` goes on with it.")
    return DONE


def _verify(args: argparse.Namespace) -> int:
    from raydiff.corpus.verifying import record_repeated_ids, verify

    saved, _ = _open(args)
    found = verify(saved, rebuild_ledger=args.rebuild_ledger)
    if found.sound and record_repeated_ids(saved, found):
        print("The report has the number of repeated ids now.", file=sys.stderr)
    if args.json:
        print(json.dumps(found.to_dict()))
    else:
        print("\n".join(_verification_lines(found)))
    return DONE if found.sound else FAULTS


def _verification_lines(found: Verification) -> list[str]:
    lines = [f"{fault.file}: {fault.kind}: {fault.message}" for fault in found.faults]
    if len(lines) > _SHOWN_FAULTS:
        rest = len(lines) - _SHOWN_FAULTS
        lines = [*lines[:_SHOWN_FAULTS], f"and {rest} more; --json has them all"]
    verdict = "sound" if found.sound else f"{len(found.faults)} faults"
    return [
        *lines,
        f"{verdict}: {found.committed:,} of {found.shards:,} shards, {found.rows:,} documents, "
        f"{found.failed:,} failed, {found.repeated_ids:,} repeated ids",
    ]
