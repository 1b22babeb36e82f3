"""Entry point for `ray job submit --working-dir . -- python jobs/evaluate.py INPUT OUTPUT ...`.

Generates a sample of INPUT under several decoding settings and writes to OUTPUT how good and how
fast each is, and which is the fastest within a stated loss. OUTPUT must be s3:// or an absolute
path. It uses the app that runs on the cluster, and starts one for itself where none does.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace

from raydiff.bench.evaluation.evaluate import REPORT, Evaluation, prepare, run_evaluation
from raydiff.bench.evaluation.markdown import verdict
from raydiff.bench.evaluation.scores import QUALITY
from raydiff.bench.evaluation.settings import parse_setting, read_settings
from raydiff.cli import exit_status
from raydiff.cli.corpus_flags import add_input_arguments, input_settings, require_lasting
from raydiff.cli.decoding import decoding_from
from raydiff.client import Client
from raydiff.config import AppSettings, ServeSettings, TaskSettings, usable_cores
from raydiff.launch import running_app

_SETTING_HELP = "a setting to compare; 'NAME: ' before it names it; may be repeated"


def build_parser() -> argparse.ArgumentParser:
    """The command line. Decoding flags apply to every setting that does not say otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_input_arguments(parser)
    add = parser.add_argument
    add("output", metavar="OUTPUT", help="new directory for the findings, local or s3://")
    add("--task", choices=("summarize", "rewrite"), default="summarize", help="task (summarize)")
    add("--setting", action="append", default=[], metavar="NAME=VALUE,...", help=_SETTING_HELP)
    add("--settings", metavar="FILE", help="JSON: an object of decoding settings by name")
    add("--documents", type=int, default=200, metavar="N", help="size of the sample (200)")
    add("--rounds", type=int, default=3, metavar="N", help="interleaved rounds (3)")
    add("--reference-column", metavar="NAME", help="column of what should be written")
    add("--metric", choices=QUALITY, help="what decides (rougeL; coverage without references)")
    add("--max-loss", type=float, default=0.01, metavar="X", help="of that metric (0.01)")
    add("--reference-setting", metavar="NAME", help="what losses are against (the best)")
    add("--sheet", type=int, default=0, metavar="N", help="blind sheet of N documents, WITH TEXT")
    add("--include-text", action="store_true", help="put texts beside the scores")
    add("--redact", default="addresses", help="for texts: addresses, none or MODULE:FUNCTION")
    add("--replicas", type=int, metavar="N", help="replicas, when none run yet")
    add("--threads", type=int, metavar="N", help="CPU threads of each replica")
    add("--calls-in-flight", type=int, default=8, metavar="N", help="calls in flight (8)")
    return parser


def evaluation_from(args: argparse.Namespace) -> Evaluation:
    """The evaluation that the flags describe."""
    require_lasting(args.output)
    corpus = input_settings(args, TaskSettings(kind=args.task))
    # each text is generated and timed, also the second of its kind
    corpus = corpus.model_copy(update={"output": args.output, "dedupe": False})
    settings = [parse_setting(text) for text in args.setting]
    settings += read_settings(args.settings) if args.settings else []
    return Evaluation(
        corpus=corpus,
        settings=tuple(settings),
        base=replace(decoding_from(args), seed=None),
        documents=args.documents,
        rounds=args.rounds,
        reference_column=args.reference_column,
        metric=args.metric,
        max_loss=args.max_loss,
        reference_setting=args.reference_setting,
        include_text=args.include_text,
        sheet=args.sheet,
        redact=args.redact,
        calls_in_flight=args.calls_in_flight,
    )


def run(args: argparse.Namespace) -> int:
    """Evaluate and print the verdict."""
    prepared = prepare(evaluation_from(args))
    if args.sheet or args.include_text:
        print(f"Texts of documents are written, redacted by {args.redact}.", file=sys.stderr)
    replicas = args.replicas or max(1, usable_cores() // 2)
    threads = args.threads or max(1, (usable_cores() - 1) // replicas)
    app_settings = AppSettings(model=args.model, replicas=replicas, threads=threads)
    with running_app(app_settings, ServeSettings(port=0)) as app:
        client = Client.connect(app.models[0], app.app_name)
        report = run_evaluation(prepared, client, lambda line: print(line, file=sys.stderr))
    print(json.dumps(report) if args.json else f"{verdict(report)}\n{args.output}/{REPORT}")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the job; errors are one line on stderr."""
    args = build_parser().parse_args(argv)
    return exit_status(lambda: run(args))


if __name__ == "__main__":
    raise SystemExit(main())
