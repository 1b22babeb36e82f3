"""`raydiff summarize`: a Parquet corpus through the replicas of a model."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from raydiff.cli.decoding import add_decoding_arguments, decoding_from
from raydiff.config import CorpusSettings, in_submitted_job, usable_cores
from raydiff.errors import UsageError, invalid

if TYPE_CHECKING:
    from raydiff.corpus.directory import RunDirectory
    from raydiff.launch import RunningApp

DONE, FAILED_DOCUMENTS = 0, 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "summarize",
        help="summarise a Parquet corpus",
        description="Summarise every document of a Parquet corpus. Repeat the same command to "
        "continue a run that was stopped: what is committed is not computed again.",
    )
    parser.add_argument("input", metavar="INPUT", help="Parquet file, or directory of *.parquet")
    parser.add_argument("output", metavar="OUTPUT", help="directory of this run")
    parser.add_argument(
        "--model", default="summarizer", help="bundled name or checkpoint directory"
    )
    parser.add_argument(
        "--instruction",
        metavar="TEXT",
        help="what to tell a model with a chat template to do with each document "
        "(summarise it; '' for the bare document)",
    )
    parser.add_argument("--text-column", default="text", metavar="NAME", help="documents (text)")
    parser.add_argument(
        "--id-column",
        metavar="NAME",
        help="ids (doc_id or id where there is one, else FILE:ROW)",
    )
    parser.add_argument(
        "--pass-columns",
        action="append",
        default=[],
        metavar="NAME[,NAME...]",
        help="input columns to carry to the output; may be repeated",
    )
    _number(parser, "--replicas", "model replicas, when none run yet (one per two cores)")
    _number(parser, "--threads", "CPU threads of each replica (all but one core, shared out)")
    _number(parser, "--workers", "processes that feed the replicas (one per replica)")
    _number(parser, "--shard-rows", "rows per commit (256)", default=256)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    _number(parser, "--metrics-port", "port of the metrics to scrape (any)")
    parser.add_argument(
        "--metrics-wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="stay up this long at the end, so that a scraper sees the last figures (0)",
    )
    add_decoding_arguments(parser)


def _number(
    parser: argparse.ArgumentParser, flag: str, help_text: str, default: int | None = None
) -> None:
    parser.add_argument(flag, type=int, metavar="N", default=default, help=help_text)


def run(args: argparse.Namespace) -> int:
    """Run or continue the job; status 1 when documents failed."""
    settings = corpus_settings(args)
    decoding = replace(decoding_from(args), seed=None)

    from raydiff.corpus.closing import close
    from raydiff.corpus.directory import open_run
    from raydiff.corpus.report import Session

    with open_run(settings, decoding) as opened:
        if opened.finished:
            print("This run is complete; nothing is left to do.", file=sys.stderr)
            report = opened.saved_report() or close(opened, Session())
        elif opened.pending:
            report = _execute(args, opened)
        else:
            report = close(opened, Session())
    print_report(report, as_json=args.json)
    return FAILED_DOCUMENTS if report["failed"] else DONE


def corpus_settings(args: argparse.Namespace) -> CorpusSettings:
    """The run that the flags describe.

    Raises:
        UsageError: a value is impossible.
    """
    for name in ("replicas", "threads", "workers", "shard_rows"):
        value = getattr(args, name)
        if value is not None and value < 1:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(invalid(flag, expected="an integer of at least 1", got=value), name)
    if args.seed is not None and args.seed < 0:
        raise UsageError(invalid("--seed", expected="an integer of at least 0", got=args.seed))
    if in_submitted_job() and not os.path.isabs(args.output):
        raise UsageError(
            invalid(
                "output",
                expected="an absolute path in a submitted job",
                got=args.output,
                remedy="The job's working directory is a temporary copy.",
            ),
            "output",
        )
    return CorpusSettings(
        input=args.input,
        output=args.output,
        model=args.model,
        instruction=args.instruction,
        text_column=args.text_column,
        id_column=args.id_column,
        pass_columns=tuple(n for names in args.pass_columns for n in names.split(",") if n),
        shard_rows=args.shard_rows,
        replicas=args.replicas,
        workers=args.workers,
        seed=args.seed or 0,
    )


def _execute(args: argparse.Namespace, opened: RunDirectory) -> dict[str, Any]:
    from raydiff.config import AppSettings, ServeSettings
    from raydiff.launch import running_app

    cores = usable_cores()
    replicas = opened.settings.replicas or max(1, cores // 2)
    threads = args.threads or max(1, (cores - 1) // replicas)
    app_settings = AppSettings(model=opened.settings.model, replicas=replicas, threads=threads)
    endpoint = ServeSettings(port=0)
    try:
        with running_app(app_settings, endpoint, metrics_port=args.metrics_port) as app:
            return _summarize(args, opened, app)
    except KeyboardInterrupt:
        print(
            "Stopped. Committed shards are kept; repeat the command to continue.", file=sys.stderr
        )
        raise


def _summarize(args: argparse.Namespace, opened: RunDirectory, app: RunningApp) -> dict[str, Any]:
    from raydiff.corpus.progress import Progress
    from raydiff.corpus.run import execute

    done = sum(part.rows + part.errors for part in opened.committed.values())
    _say_start(opened, app, done)
    progress = Progress(opened.inputs.rows, done, sys.stderr)
    try:
        report = execute(opened, progress.update, app_name=app.app_name)
    finally:
        progress.close()
    if args.metrics_wait > 0:
        _wait_for_scrape(args.metrics_wait, app)
    return {**report, "metrics_url": app.metrics_url}


def _say_start(opened: RunDirectory, app: RunningApp, done: int) -> None:
    how = "started for this run" if app.started_app else "already running"
    print(f"Model {', '.join(app.models)} at {app.url} ({how})", file=sys.stderr)
    print(f"Metrics at {app.metrics_url}", file=sys.stderr)
    shards = f"{len(opened.pending)} of {len(opened.plan.shards)} shards to do"
    print(f"{opened.inputs.rows} documents, {done} committed, {shards}", file=sys.stderr)


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
    print(f"documents   {report['summarized']} summarised, {failed}")
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
