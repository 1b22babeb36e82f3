"""`raydiff generate`: one text through an engine in this process."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from raydiff.cli.decoding import add_decoding_arguments, decoding_from
from raydiff.config import Device, Dtype
from raydiff.errors import EngineError
from raydiff.request import Completion, Decoding

if TYPE_CHECKING:
    from raydiff.engine import Engine
    from raydiff.engine.canvas import Canvas

MODEL_HELP = "bundled name, checkpoint directory, or random:PRESET"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("generate", help="generate from one text, here and now")
    parser.add_argument("text", metavar="TEXT", help="the prompt; - reads standard input")
    parser.add_argument("--model", default="summarizer", help=MODEL_HELP)
    parser.add_argument("--device", default="auto", choices=get_args(Device))
    parser.add_argument("--dtype", default="auto", choices=get_args(Dtype))
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (all usable cores)")
    parser.add_argument(
        "--raw",
        action="store_true",
        help="continue TEXT; a model with a chat template answers it otherwise",
    )
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
    tokenizer = engine.tokenizer
    prompt = tokenizer.prompt_ids(text) if args.raw else tokenizer.answer_prompt_ids(text)
    if args.watch:
        completion = _watch(engine, prompt, decoding)
    else:
        (completion,) = engine.generate([prompt], decoding)
    if completion.error is not None:
        raise EngineError(completion.error)
    print(json.dumps(_record(completion)) if args.json else completion.text)
    return 0


def _watch(engine: Engine, prompt: Sequence[int], decoding: Decoding) -> Completion:
    from raydiff.cli.watch import CanvasView

    view = CanvasView(engine.tokenizer, engine.spec, sys.stderr)
    engine.submit(engine.request(prompt, decoding))
    (canvas,) = engine.canvases()
    while True:
        view.show(*_written(canvas))
        for event in engine.step():
            if event.completion is not None:
                view.show(*_written(canvas))
                view.close(event.completion)
                return event.completion


def _written(canvas: Canvas) -> tuple[list[int], list[bool]]:
    """Finished frames and the current one: tokens, and which of them are open.

    Under uniform noise everything is open until the end: there the noise itself is shown.
    """
    from raydiff.engine.state import State

    done = list(canvas.written.done)
    if canvas.state is State.ENCODE_BLOCK or canvas.finish_reason == "length":
        return done, [False] * len(done)  # the current frame is among the finished ones
    lead = canvas.frame.lead
    text = slice(lead, lead + canvas.max_tokens - len(done))
    is_open = canvas.open[text] & (canvas.spec.noise != "uniform")
    return done + canvas.tokens[text].tolist(), [False] * len(done) + is_open.tolist()


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
