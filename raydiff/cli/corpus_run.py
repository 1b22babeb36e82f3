"""Runs or continues a corpus run on an app that it finds or starts, and prints what came of it."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from raydiff.cli.corpus_flags import corpus_settings
from raydiff.cli.decoding import decoding_from
from raydiff.config import CorpusSettings, TaskSettings, usable_cores
from raydiff.request import Decoding

if TYPE_CHECKING:
    from raydiff.corpus.directory import RunDirectory
    from raydiff.launch import RunningApp

DONE, FAILED_DOCUMENTS = 0, 1
_DONE_WORD = {
    "summarize": "summarised",
    "rewrite": "rewritten",
    "label": "labelled",
    "request": "answered",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What concerns this start of a run only."""

    threads: int | None = None
    """CPU threads of each replica that is started."""
    num_gpus: float = 0.0
    """GPUs reserved for each replica that is started."""
    metrics_port: int | None = None
    metrics_wait_s: float = 0.0
    """How long to stay up at the end."""
    as_json: bool = False


def run_command(args: argparse.Namespace, task: TaskSettings) -> int:
    """Run what the flags describe; status 1 when documents failed."""
    options = Options(
        threads=args.threads,
        num_gpus=args.num_gpus,
        metrics_port=args.metrics_port,
        metrics_wait_s=args.metrics_wait,
        as_json=args.json,
    )
    settings = corpus_settings(args, task)
    return run_corpus(settings, replace(decoding_from(args), seed=None), options)


def run_corpus(settings: CorpusSettings, decoding: Decoding, options: Options) -> int:
    """Run or continue a run; status 1 when documents failed.

    Raises:
        UsageError: a setting, the input or the output cannot work.
        ModelError: the model is unknown or cannot be loaded.
        ClusterError: the run could not be brought to its end; it can be continued.
    """
    from raydiff.corpus.closing import close
    from raydiff.corpus.directory import open_run
    from raydiff.corpus.report import Session

    with open_run(settings, decoding) as opened:
        if opened.finished:
            print("This run is complete; nothing is left to do.", file=sys.stderr)
            report = opened.saved_report()
            if report.get("status") != "done":  # lost, or stopped in the last moment
                report = close(opened, Session())
        elif opened.pending:
            report = _execute(opened, options)
        else:
            report = close(opened, Session())
    print_report(report, as_json=options.as_json)
    return FAILED_DOCUMENTS if report["failed"] else DONE


def _execute(opened: RunDirectory, options: Options) -> dict[str, Any]:
    from raydiff.config import AppSettings, ServeSettings
    from raydiff.corpus.run import require_reachable
    from raydiff.launch import running_app

    cores = usable_cores()
    replicas = opened.settings.replicas or (1 if options.num_gpus else max(1, cores // 2))
    threads = options.threads or max(1, (cores - 1) // replicas)
    app_settings = AppSettings(
        model=opened.settings.model,
        replicas=replicas,
        threads=threads,
        num_gpus=options.num_gpus,
    )
    endpoint = ServeSettings(port=0)
    try:
        with running_app(
            app_settings,
            endpoint,
            metrics_port=options.metrics_port,
            check=lambda: require_reachable(opened),
        ) as app:
            return _generate(opened, options, app)
    except KeyboardInterrupt:
        print(
            "Stopped. Committed shards are kept; repeat the command to continue.", file=sys.stderr
        )
        raise


def _generate(opened: RunDirectory, options: Options, app: RunningApp) -> dict[str, Any]:
    from raydiff.corpus.progress import Progress
    from raydiff.corpus.run import execute

    done = opened.committed.documents
    _say_start(opened, app, done)
    progress = Progress(opened.plan.rows, done, sys.stderr)
    try:
        report = execute(opened, progress.update, app_name=app.app_name)
    finally:
        progress.close()
    if options.metrics_wait_s > 0:
        _wait_for_scrape(options.metrics_wait_s, app)
    return {**report, "metrics_url": app.metrics_url}


def _say_start(opened: RunDirectory, app: RunningApp, done: int) -> None:
    how = "started for this run" if app.started_app else "already running"
    print(f"Model {', '.join(app.models)} at {app.url} ({how})", file=sys.stderr)
    print(f"Metrics at {app.metrics_url}", file=sys.stderr)
    shards = f"{len(opened.pending)} of {len(opened.plan.shards)} shards to do"
    print(f"{opened.plan.rows} documents, {done} committed, {shards}", file=sys.stderr)


def _wait_for_scrape(seconds: float, app: RunningApp) -> None:
    import time

    print(f"Waiting {seconds:g} s for a scrape of {app.metrics_url}", file=sys.stderr)
    time.sleep(seconds)


def print_report(report: dict[str, Any], *, as_json: bool) -> None:
    """Print what came of the run: lines for a reader, or one JSON object."""
    if as_json:
        print(json.dumps({k: v for k, v in report.items() if k not in ("fingerprint", "settings")}))
        return
    session = report["session"]
    kinds = ", ".join(f"{kind} {count}" for kind, count in report["error_types"].items())
    failed = f"{report['failed']} failed" + (f" ({kinds})" if kinds else "")
    print(f"documents   {report['summarized']:,} {_DONE_WORD[_task(report)]}, {failed}")
    if report.get("duplicates"):
        print(f"duplicates  {report['duplicates']:,} of them copied from one with the same text")
    if report["repeated_ids"]:
        print(f"ids         {report['repeated_ids']} repeat an earlier one; all are kept")
    print(
        f"throughput  {session['documents_per_s']:.1f} documents/s, "
        f"{session['output_tokens_per_s']:.0f} output tokens/s, "
        f"{report['tokens_per_forward']:.2f} tokens per forward"
    )
    print(f"output      {report['output']}")
    if "metrics_url" in report:
        print(f"metrics     {report['metrics_url']}")


def _task(report: dict[str, Any]) -> str:
    kind: str = report["settings"]["task"]["kind"]
    return kind
