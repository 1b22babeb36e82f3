"""How far an estimate was from the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raydiff.config import StorageSettings
from raydiff.corpus.runs import read_report_file
from raydiff.errors import InputError, invalid
from raydiff.storage import open_folder

_COUNTS = ("prompt_tokens", "output_tokens", "forwards")


def read_run(location: str, storage: StorageSettings) -> dict[str, Any]:
    """The report of a finished run.

    Raises:
        InputError: the directory holds none.
    """
    report = read_report_file(open_folder(location, "compare", storage))
    if report.get("status") != "done":
        got = f"{location} with status {report.get('status')!r}"
        message = invalid("compare", expected="the directory of a finished run", got=got)
        raise InputError(message, "compare")
    return report


def compare(estimate: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """Each figure of the estimate beside the run's, with its error: estimate over run, less 1."""
    rows = [_row("documents", {"value": estimate["documents"]}, run["rows"])]
    rows += [_row(name, estimate["estimates"][name], run.get(name)) for name in _COUNTS]
    rows.append(_row("seconds", estimate["seconds"], _seconds(run)))
    return {"rows": rows, "notes": list(_notes(estimate, run))}


def _row(name: str, estimate: Mapping[str, float], run: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {"what": name, "estimate": estimate["value"], "run": run}
    row["error"] = estimate["value"] / run - 1 if run else None
    if "low" in estimate and run is not None:
        row["within"] = estimate["low"] <= run <= estimate["high"]
    return row


def _seconds(run: Mapping[str, Any]) -> float | None:
    """From the first shard's reading to the last commit, for all documents."""
    session = run["session"]
    if not session["documents"]:
        return None
    return float(session["seconds"]) * float(run["rows"]) / float(session["documents"])


def _notes(estimate: Mapping[str, Any], run: Mapping[str, Any]) -> Iterator[str]:
    if run["model"] != estimate["model"]:
        yield f"the run was of model {run['model']}, the estimate of {estimate['model']}"
    ran = (run.get("fingerprint") or {}).get("decoding") or {}
    for name, value in estimate["decoding"].items():
        if name in ran and ran[name] != (list(value) if isinstance(value, tuple) else value):
            yield f"the run had {name} {ran[name]}, the estimate {value}"
    session = run["session"]
    if 0 < session["documents"] < run["rows"]:
        yield (
            f"the last start of the run did {session['documents']} of {run['rows']} documents; "
            "its seconds are scaled up"
        )
    if run.get("duplicates"):
        yield f"{run['duplicates']} documents were copied, which the estimate counts as generated"
    if run.get("failed"):
        yield f"{run['failed']} documents failed"
