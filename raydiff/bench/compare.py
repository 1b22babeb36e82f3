"""`raydiff bench compare`: two reports of the same benchmark, figure by figure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from raydiff.errors import InputError, UsageError, invalid

RATES = ("output_tokens_per_s", "documents_per_s", "requests_per_s", "tokens_per_forward", "rougeL")
"""Figures compared, all of them better when higher."""

_LABELS = (
    *("name", "contender", "clients", "rate_per_s", "prompts_per_request"),
    *("batch", "steps", "threshold", "decoding"),
)
"""What tells the entries of a report apart."""


def read_report(path: str | Path) -> dict[str, Any]:
    """Read a report that `raydiff bench … --json FILE` wrote.

    Raises:
        InputError: the file is no such report.
    """
    try:
        report = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected a benchmark's JSON report: {error}.") from error
    if not isinstance(report, dict) or "bench" not in report:
        raise InputError(f"{path}: expected a benchmark's JSON report with a key 'bench'.")
    return report


def compare_reports(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Ratios after/before of the figures both reports have, and what differs around them.

    Raises:
        UsageError: the reports are of different benchmarks or share no figure.
    """
    if before["bench"] != after["bench"]:
        raise UsageError(invalid("bench", expected=before["bench"], got=after["bench"]))
    earlier, later = dict(_figures(before)), dict(_figures(after))
    rows = [
        {
            "what": what,
            "before": earlier[what],
            "after": later[what],
            "ratio": later[what] / earlier[what],
        }
        for what in earlier
        if what in later and earlier[what]
    ]
    if not rows:
        raise UsageError("The reports share no figure: expected runs with the same settings.")
    return {"bench": before["bench"], "rows": rows, "warnings": list(_differences(before, after))}


def _figures(report: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for part in ("contenders", "points", "cases", "totals"):
        entries = report.get(part, [])
        for entry in entries if isinstance(entries, list) else [entries]:
            label = " ".join(str(entry[key]) for key in _LABELS if entry.get(key) is not None)
            for rate in RATES:
                if isinstance(entry.get(rate), int | float):
                    yield f"{label} {rate}".strip(), float(entry[rate])


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What makes the two runs less comparable."""
    for key in ("model", "device", "dtype", "threads", "workload"):
        if before.get(key) != after.get(key):
            yield f"{key}: {before.get(key)} and {after.get(key)}"
    for key in ("processor", "cores", "gpus", "versions"):
        one, other = (r.get("circumstances", {}).get(key) for r in (before, after))
        if one != other:
            yield f"{key}: {one} and {other}"
