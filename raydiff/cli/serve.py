"""`raydiff serve`: the HTTP endpoint, until Ctrl-C or SIGTERM; SIGHUP reads its config again."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from raydiff.errors import RaydiffError, UsageError, invalid

if TYPE_CHECKING:
    from raydiff.config import AppSettings, Settings
    from raydiff.launch import RunningApp

AnySettings = TypeVar("AnySettings", bound="Settings")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("serve", help="serve an OpenAI-compatible HTTP endpoint")
    parser.add_argument("--model", help="bundled name, directory or random:PRESET (summarizer)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port; 0 picks a free one (8000)")
    parser.add_argument("--metrics-port", type=int, help="port of the metrics to scrape (random)")
    parser.add_argument("--replicas", type=int, help="replicas of the model (1)")
    parser.add_argument("--threads", type=int, help="CPU threads of each replica (1)")
    parser.add_argument("--gateways", type=int, help="replicas of the gateway (1)")
    parser.add_argument(
        "--haproxy",
        action="store_true",
        help="HAProxy in the place of Serve's proxy; its statistics listen on all interfaces",
    )
    parser.add_argument(
        "--keys-file",
        metavar="FILE",
        help="API keys that callers must have (`raydiff keys new`); a change is followed",
    )
    parser.add_argument(
        "--allow-anonymous",
        action="store_true",
        help="without keys: let everyone call who reaches --host",
    )
    parser.add_argument(
        "--batches",
        metavar="DIR",
        help="where OpenAI's files and batches are kept, on disk or in S3; without, they are off",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="YAML with the arguments of build_app"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; both Ctrl-C and SIGTERM end it with status 0."""
    from raydiff.config import ServeSettings

    settings = app_settings(args)
    asked = {"host": args.host, "port": args.port, "haproxy": args.haproxy}
    endpoint = _validated(ServeSettings, asked)
    port = args.metrics_port
    if port is not None and not 1 <= port <= 65535:
        raise UsageError(invalid("--metrics-port", expected="a port in [1, 65535]", got=port))

    from raydiff.launch import running_app
    from raydiff.launch.haproxy import require_told

    require_told(endpoint)
    with (
        hang_ups() as asked_again,
        running_app(settings, endpoint, metrics_port=port, reuse=False, drain=True) as app,
    ):
        _serve_until_signal(
            banner(app, settings.access.keys_file is not None), asked_again, lambda: reload(args)
        )
    return 0


def reload(args: argparse.Namespace) -> str:
    """Read the config again and change the app into it; what to tell the user.

    A config that is wrong changes nothing.
    """
    from raydiff.launch.deploy import redeploy
    from raydiff.serve.app import served_models

    if args.config is None:
        return "SIGHUP: there is no --config to read again."
    try:
        settings = app_settings(args)
        redeploy(settings)
    except RaydiffError as error:
        return f"SIGHUP: {error}"
    names = ", ".join(model.served_name for model in served_models(settings))
    return f"Serving {names}"


def app_settings(args: argparse.Namespace) -> AppSettings:
    """Arguments of the app: those of the file, then those of the command line.

    Raises:
        UsageError: the file cannot be read, or a value or key is wrong.
    """
    from raydiff.config import AppSettings

    values = read_config(args.config) if args.config is not None else {}
    for name in ("model", "replicas", "threads", "gateways"):
        if getattr(args, name) is not None:
            values[name] = getattr(args, name)
    if args.batches is not None:
        location = args.batches if "://" in args.batches else os.path.abspath(args.batches)
        values["batches"] = {**(values.get("batches") or {}), "location": location}
    access = dict(values.get("access") or {})
    if args.keys_file is not None:
        access["keys_file"] = args.keys_file
    if args.allow_anonymous:
        access["anonymous"] = "allowed"
    settings = _validated(AppSettings, {**values, "access": access} if access else values)
    if settings.access.keys_file is not None:
        require_keys(Path(settings.access.keys_file))
    return settings


def require_keys(path: Path) -> None:
    """Refuse a key file that the gateways could not use, before anything starts.

    Raises:
        UsageError: it cannot be read or is wrong.
    """
    from raydiff.serve.access.files import read_keys

    read_keys(path)


def read_config(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        UsageError: there is none.
    """
    import yaml

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"--config {path}: cannot be read: {reason}.") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        got = type(values).__name__
        raise UsageError(invalid(f"--config {path}", expected="a mapping of settings", got=got))
    return values


def banner(app: RunningApp, keyed: bool = False) -> str:
    """What a user needs to know once the app serves, to `keyed` callers or to all."""
    body = json.dumps({"model": app.models[0], "prompt": "raydiff generates text in bulk."})
    key = " -H 'Authorization: Bearer YOUR_KEY'" if keyed else ""
    return "\n".join(
        (
            f"Serving {', '.join(app.models)} at {app.url}/v1",
            f"Metrics at {app.metrics_url}",
            f"Other commands find it with RAY_ADDRESS={app.address}",
            "Try:",
            f"  curl {app.url}/v1/completions -H 'Content-Type: application/json'{key} -d '{body}'",
            "Ctrl-C ends it.",
        )
    )


def _validated(kind: type[AnySettings], values: dict[str, Any]) -> AnySettings:
    from pydantic import ValidationError

    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        known = ", ".join(kind.model_fields)
        if first["type"] == "extra_forbidden":
            message = f"{name}: unknown setting. Known are {known}."
        else:
            message = f"{name}: {first['msg']}, got {first['input']!r}."
        raise UsageError(message, name) from None


@contextmanager
def hang_ups() -> Iterator[SimpleQueue[None]]:
    """Inside, each SIGHUP is put into the queue."""
    arrived: SimpleQueue[None] = SimpleQueue()
    previous = signal.signal(signal.SIGHUP, lambda *_: arrived.put(None))
    try:
        yield arrived
    finally:
        signal.signal(signal.SIGHUP, previous)


def _serve_until_signal(
    text: str, asked_again: SimpleQueue[None], again: Callable[[], str]
) -> None:
    try:
        print(text, flush=True)
        while True:
            asked_again.get()
            print(again(), file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("Shutting down.", flush=True)
