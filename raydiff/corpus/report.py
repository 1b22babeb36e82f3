"""The run report: what `_run.json` holds and the command prints."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pyarrow as pa

from raydiff.corpus.accounting import sum_error_types, sum_totals
from raydiff.corpus.commit import ShardReport, Totals
from raydiff.corpus.directory import RunDirectory
from raydiff.corpus.parts import Committed
from raydiff.corpus.timeline import timeline
from raydiff.version import __version__

_TIMED = ("started_s", "finished_s", "rows", "errors", "completion_tokens")
_PACKAGES = ("ray", "torch", "transformers", "tokenizers", "pyarrow")


@dataclass
class Session:
    """What this start of the run has done so far. Time runs from the first shard's reading to
    the last one's commit, so that start-up does not count."""

    started_at: str = field(default_factory=lambda: _now())
    shards: int = 0
    documents: int = 0
    failed: int = 0
    totals: Totals = field(default_factory=Totals)
    first_s: float = 0.0
    last_s: float = 0.0
    replicas: int = 0
    """Replicas that run now; 0 while that is not known."""

    def add(self, report: ShardReport) -> None:
        """Count one committed shard."""
        self.first_s = min(self.first_s, report.started_s) if self.shards else report.started_s
        self.last_s = max(self.last_s, report.finished_s)
        self.shards += 1
        self.documents += report.rows + report.errors
        self.failed += report.errors
        self.totals += report.totals

    @property
    def seconds(self) -> float:
        return self.last_s - self.first_s

    @property
    def documents_per_s(self) -> float:
        return self.documents / self.seconds if self.seconds > 0 else 0.0

    @property
    def output_tokens_per_s(self) -> float:
        return self.totals.completion_tokens / self.seconds if self.seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "shards": self.shards,
            "documents": self.documents,
            "failed": self.failed,
            "seconds": round(self.seconds, 3),
            "documents_per_s": round(self.documents_per_s, 3),
            "output_tokens": self.totals.completion_tokens,
            "output_tokens_per_s": round(self.output_tokens_per_s, 3),
            "tokens_per_forward": _tokens_per_forward(self.totals),
        }


def started_report(run: RunDirectory, session: Session) -> dict[str, Any]:
    """`_run.json` of a run that is under way."""
    return {
        "status": "running",
        "input": run.settings.input,
        "output": run.settings.output,
        "model": run.settings.model,
        "started_at": session.started_at,
        "settings": run.settings.model_dump(mode="json"),
        "fingerprint": run.plan.fingerprint,
        "versions": versions(),
    }


def stopped_report(run: RunDirectory, session: Session, error: BaseException) -> dict[str, Any]:
    """`_run.json` of a run that ended early and can be continued."""
    return {
        **started_report(run, session),
        "status": "stopped",
        "finished_at": _now(),
        "reason": f"{type(error).__name__}: {error}".rstrip(": "),
        "session": session.to_dict(),
    }


def finished_report(
    run: RunDirectory, committed: Committed, shards: pa.Table, session: Session
) -> dict[str, Any]:
    """`_run.json` of a run whose shards are all committed; `shards` is the ledger's shard table."""
    totals = sum_totals(shards)
    return {
        **started_report(run, session),
        "status": "done",
        "finished_at": _now(),
        "rows": run.plan.rows,
        "summarized": committed.rows,
        "failed": committed.failed,
        "duplicates": totals.duplicates,
        "error_types": sum_error_types(shards),
        "repeated_ids": run.plan.repeated_ids,
        "shards": committed.shards,
        "appends": list(run.plan.appends),
        "prompt_tokens": totals.prompt_tokens,
        "output_tokens": totals.completion_tokens,
        "forwards": totals.forwards,
        "tokens_per_forward": _tokens_per_forward(totals),
        "throughput": _throughput(shards),
        "session": session.to_dict(),
    }


def _throughput(shards: pa.Table) -> dict[str, Any] | None:
    """Documents and output tokens over the time of all starts of the run."""
    columns = {name: shards.column(name).to_numpy() for name in _TIMED}
    found = timeline(
        columns["started_s"],
        columns["finished_s"],
        columns["rows"] + columns["errors"],
        columns["completion_tokens"],
    )
    return None if found is None else found.to_dict()


def versions() -> dict[str, str]:
    """Versions of what took part."""
    found = {"raydiff": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _tokens_per_forward(totals: Totals) -> float:
    return round(totals.completion_tokens / totals.forwards, 3) if totals.forwards else 0.0
