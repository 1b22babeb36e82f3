"""The report of a run for people: Markdown with the plot of its throughput."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raydiff.corpus.plot import throughput_svg
from raydiff.corpus.timeline import Timeline
from raydiff.storage import Folder

MARKDOWN_NAME = "_report.md"
PLOT_NAME = "_throughput.svg"


def write_markdown(folder: Folder, report: Mapping[str, Any]) -> None:
    """Write `_report.md`, and the plot beside it where the run has taken time."""
    found = report.get("throughput")
    if found:
        svg = throughput_svg(f"raydiff {_task(report)}", Timeline.from_dict(found))
        folder.put(PLOT_NAME, svg.encode())
    folder.put(MARKDOWN_NAME, markdown(report).encode())


def markdown(report: Mapping[str, Any]) -> str:
    """The report as Markdown. It holds no text of any document."""
    lines = [
        f"# raydiff {_task(report)}: {report['status']}",
        "",
        f"`{report['input']}` to `{report['output']}` with model `{report['model']}`",
        "",
        *_table(("", ""), list(_counts(report))),
    ]
    if report.get("throughput"):
        lines += ["", "## Throughput", "", f"![Throughput over time]({PLOT_NAME})"]
    if report.get("error_types"):
        kinds = [(f"`{kind}`", f"{count:,}") for kind, count in report["error_types"].items()]
        lines += ["", "## Failed documents", "", *_table(("error", "documents"), kinds)]
        lines += ["", "Each has a row in `errors/` with its message and attempts."]
    decoding = (report.get("fingerprint") or {}).get("decoding") or {}
    settings = [(f"`{k}`", f"`{v}`") for k, v in decoding.items() if v not in (None, [])]
    if settings:
        lines += ["", "## Decoding", "", *_table(("setting", "value"), settings)]
    versions = [(name, version) for name, version in report["versions"].items()]
    lines += ["", "## Versions", "", *_table(("package", "version"), versions)]
    return "\n".join(lines) + "\n"


def _task(report: Mapping[str, Any]) -> str:
    task: str = report["settings"]["task"]["kind"]
    return task


def _counts(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "started", f"{report['started_at']}"
    if "finished_at" in report:
        yield "ended", f"{report['finished_at']}"
    if "reason" in report:
        yield "why it ended", f"{report['reason']}"
    for name, key in _COUNTS:
        if report.get(key) is not None:
            yield name, f"{report[key]:,}"
    session = report.get("session")
    if session:
        yield "documents in this start of the run", f"{session['documents']:,}"
        yield "the same a second", f"{session['documents_per_s']:,.1f}"
        yield "output tokens a second", f"{session['output_tokens_per_s']:,.0f}"


_COUNTS = (
    ("documents", "rows"),
    ("done", "summarized"),
    ("failed", "failed"),
    ("copied from a document with the same text", "duplicates"),
    ("repeated ids", "repeated_ids"),
    ("shards", "shards"),
    ("prompt tokens", "prompt_tokens"),
    ("output tokens", "output_tokens"),
    ("forwards", "forwards"),
    ("output tokens per forward", "tokens_per_forward"),
)


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> Iterator[str]:
    yield f"| {head[0]} | {head[1]} |"
    yield "|---|---:|"
    for name, value in rows:
        yield f"| {_cell(name)} | {_cell(value)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
