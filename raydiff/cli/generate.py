"""`raydiff generate`: one text through an engine in this process."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from raydiff.cli.decoding import add_decoding_arguments, decoding_from
from raydiff.errors import EngineError
from raydiff.request import Completion, Decoding

if TYPE_CHECKING:
    from raydiff.engine import Engine
    from raydiff.engine.canvas import Canvas


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("generate", help="generate from one text, here and now")
    parser.add_argument("text", metavar="TEXT", help="the prompt; - reads standard input")
    parser.add_argument("--model", default="summarizer", help="bundled name or directory")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--dtype", default="auto", choices=("auto", "fp32", "bf16", "fp16"))
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (all usable cores)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--watch", action="store_true", help="show the canvas after each step")
    add_decoding_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Generate and print the text, or the whole completion as JSON."""
    decoding = decoding_from(args)
    text = sys.stdin.read() if args.text == "-" else args.text

    from raydiff.config import EngineSettings
    from raydiff.engine import Engine

    settings = EngineSettings(threads=args.threads)
    engine = Engine.load(args.model, device=args.device, dtype=args.dtype, settings=settings)
    if args.watch:
        completion = _watch(engine, text, decoding)
    else:
        (completion,) = engine.generate([text], decoding)
    if completion.error is not None:
        raise EngineError(completion.error)
    print(json.dumps(_record(completion)) if args.json else completion.text)
    return 0


def _watch(engine: Engine, text: str, decoding: Decoding) -> Completion:
    from raydiff.cli.watch import CanvasView

    view = CanvasView(engine.tokenizer, engine.spec, sys.stderr)
    engine.submit(engine.request(text, decoding))
    (canvas,) = engine.canvases()
    while True:
        view.show(*_written(canvas))
        for event in engine.step():
            if event.completion is not None:
                view.show(*_written(canvas))
                view.close(event.completion)
                return event.completion


def _written(canvas: Canvas) -> tuple[list[int], list[bool]]:
    """Finished blocks and the current one: tokens, and which of them are open."""
    from raydiff.engine.canvas import State

    done = list(canvas.done)
    if canvas.state is State.ENCODE_BLOCK or canvas.finish_reason == "length":
        return done, [False] * len(done)  # the current block is among the finished ones
    return done + canvas.tokens.tolist(), [False] * len(done) + canvas.open.tolist()


def _record(completion: Completion) -> dict[str, Any]:
    usage = completion.usage
    return {
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "forwards": usage.forwards,
        "tokens_per_forward": round(usage.tokens_per_forward, 3),
    }
