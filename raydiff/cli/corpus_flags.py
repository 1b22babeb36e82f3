"""The flags that every corpus command has, and the settings they describe."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from raydiff.cli.decoding import add_decoding_arguments
from raydiff.config import (
    CorpusSettings,
    StorageSettings,
    TaskSettings,
    in_submitted_job,
    s3_endpoint_url,
)
from raydiff.errors import UsageError, invalid
from raydiff.text import read_examples

_COUNTS = (
    "replicas",
    "threads",
    "workers",
    "shard_rows",
    "calls_in_flight",
    "max_attempts",
    "max_document_tokens",
    "merge_depth",
    "target_words",
)
"""Flags that take an integer of at least 1."""


def add_corpus_arguments(parser: argparse.ArgumentParser) -> None:
    """Add INPUT, OUTPUT and the flags of every corpus command, decoding included."""
    add_input_arguments(parser)
    parser.add_argument("output", metavar="OUTPUT", help="directory of this run, local or s3://")
    parser.add_argument(
        "--append",
        action="store_true",
        help="take in files that were added to INPUT since this run began",
    )
    _add_columns_passed(parser)
    _add_failures(parser.add_argument_group("failures"))
    _add_running(parser.add_argument_group("running"))


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Add INPUT and the flags that say how its documents become requests, decoding included."""
    parser.add_argument(
        "input",
        metavar="INPUT",
        help="a file, a directory or a quoted pattern (*, **, {a,b}) of Parquet, JSON lines or CSV "
        "(.gz .zst .bz2 .lz4), on disk or s3://",
    )
    parser.add_argument(
        "--model",
        default="summarizer",
        help="bundled name, checkpoint directory or random:PRESET (summarizer)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    _add_columns(parser.add_argument_group("columns"))
    _add_prompt(parser.add_argument_group("prompt"))
    _add_documents(parser.add_argument_group("documents"))
    _add_storage(parser.add_argument_group("storage"))
    add_decoding_arguments(parser)


def _add_columns(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--text-column",
        default="text",
        metavar="NAME",
        help="documents (text); body.text is the field of a struct",
    )
    group.add_argument(
        "--id-column",
        metavar="NAME",
        help="ids (doc_id or id where there is one, else FILE:ROW)",
    )


def _add_columns_passed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pass-columns",
        action="append",
        default=[],
        metavar="NAME[,NAME...]",
        help="input columns to carry to the output; key=value directories are columns too; "
        "may be repeated",
    )


def _add_prompt(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--instruction",
        metavar="TEXT",
        help="what to tell a model with a chat template to do with each document "
        "('' for the bare document)",
    )
    group.add_argument(
        "--template",
        metavar="TEXT",
        help="prompt with {text} in the document's place; @FILE reads a file",
    )
    group.add_argument(
        "--merge-template",
        metavar="TEXT",
        help="prompt that makes one answer of those for a document's chunks (--template); "
        "@FILE reads a file",
    )
    group.add_argument("--system", metavar="TEXT", help="system prompt; @FILE reads a file")
    group.add_argument(
        "--examples", metavar="FILE", help="JSONL of examples with the keys text and answer"
    )
    _count(group, "--target-words", "length to ask for")


def _add_documents(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--on-long",
        choices=("chunk", "truncate", "fail"),
        default="chunk",
        help="what becomes of documents longer than a prompt (chunk)",
    )
    group.add_argument(
        "--on-empty",
        choices=("fail", "skip"),
        default="fail",
        help="what becomes of documents without text: an error, or an empty answer (fail)",
    )
    _count(group, "--max-document-tokens", "tokens of a document that are read at most (all)")
    _count(group, "--merge-depth", "levels of merging the answers for chunks (8)", default=8)
    group.add_argument(
        "--no-dedupe",
        dest="dedupe",
        action="store_false",
        help="generate documents with the same text each on its own",
    )


def _add_failures(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--max-failed-fraction",
        type=float,
        default=1.0,
        metavar="X",
        help="end the run when more of its documents fail (1: never)",
    )
    _count(group, "--max-attempts", "attempts before a document has failed (3)", default=3)


def _add_running(group: argparse._ArgumentGroup) -> None:
    _count(group, "--replicas", "model replicas, when none run yet (one per two cores here)")
    group.add_argument(
        "--num-gpus",
        type=float,
        default=0.0,
        metavar="X",
        help="GPUs, or a fraction of one, reserved for each replica that is started (0)",
    )
    _count(group, "--threads", "CPU threads of each replica (all but one core, shared out)")
    _count(group, "--workers", "processes that feed the replicas (by the number of replicas)")
    _count(group, "--shard-rows", "rows per commit (256)", default=256)
    _count(group, "--calls-in-flight", "calls in flight per worker (by the replicas' speed)")
    group.add_argument(
        "--stuck-after",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="give a shard without progress to another worker after this long (300)",
    )
    group.add_argument(
        "--metrics-port", type=int, metavar="N", help="port of the metrics to scrape (any)"
    )
    group.add_argument(
        "--metrics-wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="stay up this long at the end, so that a scraper sees the last figures (0)",
    )


def add_store_arguments(group: argparse._ActionsContainer) -> None:
    """Add the flags that say which object store is meant."""
    group.add_argument(
        "--endpoint-url",
        metavar="URL",
        help="of an S3-compatible store ($AWS_ENDPOINT_URL_S3 or $AWS_ENDPOINT_URL)",
    )
    group.add_argument("--region", metavar="NAME", help="of the store (the environment's)")


def store_settings(args: argparse.Namespace) -> StorageSettings:
    """The object store that the flags or the environment name."""
    return StorageSettings(endpoint_url=args.endpoint_url or s3_endpoint_url(), region=args.region)


def _add_storage(group: argparse._ArgumentGroup) -> None:
    add_store_arguments(group)
    group.add_argument(
        "--anonymous-input",
        action="store_true",
        help="read INPUT without credentials, as public buckets allow",
    )
    group.add_argument(
        "--shared-filesystem",
        action="store_true",
        help="local paths are on a disk that every node of the cluster mounts",
    )


def _count(
    group: argparse._ArgumentGroup, flag: str, help_text: str, default: int | None = None
) -> None:
    group.add_argument(flag, type=int, metavar="N", default=default, help=help_text)


def task_settings(args: argparse.Namespace, task: TaskSettings) -> TaskSettings:
    """The task with what the prompt flags add.

    Raises:
        UsageError: a file that a flag names cannot be read.
    """
    given = {
        "template": _text(args.template, "template"),
        "system": _text(args.system, "system"),
        "examples": read_examples(args.examples) if args.examples else None,
        "target_words": args.target_words,
        "merge_template": _text(args.merge_template, "merge_template"),
    }
    return task.model_copy(update={k: v for k, v in given.items() if v is not None})


def corpus_settings(args: argparse.Namespace, task: TaskSettings) -> CorpusSettings:
    """The run that the flags describe.

    Raises:
        UsageError: a value is impossible.
    """
    require_fraction(args.max_failed_fraction)
    require_gpus(args.num_gpus)
    if not args.stuck_after > 0.0:
        raise _bad("stuck_after", "a number of seconds above 0", args.stuck_after)
    require_lasting(args.output)
    own = {
        "output": args.output,
        "pass_columns": tuple(n for names in args.pass_columns for n in names.split(",") if n),
        "shard_rows": args.shard_rows,
        "replicas": args.replicas,
        "workers": args.workers,
        "calls_in_flight": args.calls_in_flight,
        "max_attempts": args.max_attempts,
        "shared_filesystem": args.shared_filesystem,
        "append": args.append,
        "max_failed_fraction": args.max_failed_fraction,
        "stuck_after_s": args.stuck_after,
    }
    return input_settings(args, task).model_copy(update=own)


def require_fraction(value: float | None) -> None:
    """Check a --max-failed-fraction.

    Raises:
        UsageError: it is none.
    """
    if value is not None and not 0.0 <= value <= 1.0:
        raise _bad("max_failed_fraction", "a number in [0, 1]", value)


def require_gpus(value: float) -> None:
    """Check a --num-gpus.

    Raises:
        UsageError: it is negative.
    """
    if value < 0:
        raise _bad("num_gpus", "a number of at least 0", value)


def require_lasting(output: str) -> None:
    """Refuse an output that would vanish with a submitted job's working directory.

    Raises:
        UsageError: it would.
    """
    if in_submitted_job() and "://" not in output and not os.path.isabs(output):
        expected = "an absolute path or an s3:// address in a submitted job"
        remedy = "The job's working directory is a temporary copy."
        raise UsageError(invalid("output", expected=expected, got=output, remedy=remedy), "output")


def input_settings(args: argparse.Namespace, task: TaskSettings) -> CorpusSettings:
    """The input that the flags describe and what is asked of its documents; no output.

    Raises:
        UsageError: a value is impossible.
    """
    _check_numbers(args)
    storage = store_settings(args)
    public = storage.model_copy(update={"anonymous": True}) if args.anonymous_input else None
    return CorpusSettings(
        input=args.input,
        output="",
        model=args.model,
        instruction=args.instruction,
        text_column=args.text_column,
        id_column=args.id_column,
        seed=args.seed or 0,
        task=task_settings(args, task),
        storage=storage,
        input_storage=public,
        on_long=args.on_long,
        on_empty=args.on_empty,
        max_document_tokens=args.max_document_tokens,
        merge_depth=args.merge_depth,
        dedupe=args.dedupe,
    )


def _check_numbers(args: argparse.Namespace) -> None:
    for name in _COUNTS:
        value = getattr(args, name, None)  # not every command has all of them
        if value is not None and value < 1:
            raise _bad(name, "an integer of at least 1", value)
    if args.seed is not None and args.seed < 0:
        raise _bad("seed", "an integer of at least 0", args.seed)


def _bad(name: str, expected: str, got: object) -> UsageError:
    flag = f"--{name.replace('_', '-')}"
    return UsageError(invalid(flag, expected=expected, got=got), name)


def _text(value: str | None, name: str) -> str | None:
    """The value itself, or of `@FILE` the file's content."""
    if value is None or not value.startswith("@"):
        return value
    return _read(Path(value[1:]), name).removesuffix("\n")


def _read(path: Path, name: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        flag = f"--{name.replace('_', '-')}"
        message = invalid(flag, expected="a readable text file", got=str(path), remedy=str(error))
        raise UsageError(message, name) from error
