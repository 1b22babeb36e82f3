"""`raydiff keys`: makes API keys, and checks the file of their hashes."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raydiff.errors import InputError, UsageError, invalid

if TYPE_CHECKING:
    from raydiff.serve.access.keys import KeyEntry

PRIVATE = 0o600
GIVEN = (
    "models",
    "expires",
    "lane",
    "requests_per_minute",
    "tokens_per_minute",
    "concurrent_requests",
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser("keys", help="make API keys, or check a file of them")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    new = actions.add_parser("new", help="make a key: print it once, and the entry of its hash")
    new.add_argument("--id", required=True, help="name of the key, in logs and limits")
    new.add_argument("--file", type=Path, help="YAML file to add the entry to, made if missing")
    new.add_argument(
        "--models", nargs="+", metavar="NAME", help="models it may use, or patterns (all)"
    )
    new.add_argument("--expires", type=_moment, metavar="TIME", help="e.g. 2027-01-01T00:00:00Z")
    new.add_argument("--lane", choices=("interactive", "batch"), help="lane of all its requests")
    for name in ("requests-per-minute", "tokens-per-minute", "concurrent-requests"):
        new.add_argument(f"--{name}", type=int, metavar="N", help="(without limit)")
    check = actions.add_parser("check", help="check a key file, or a directory of them")
    check.add_argument("file", type=Path, metavar="FILE")


def run(args: argparse.Namespace) -> int:
    """Make a key or check a file; what is wrong ends it with status 2."""
    return _check(args.file) if args.action == "check" else _new(args)


def _new(args: argparse.Namespace) -> int:
    from raydiff.serve.access.keys import entries_of, hash_of, new_key

    key = new_key()
    given = {name: value for name in GIVEN if (value := getattr(args, name)) is not None}
    entry = {"id": args.id, "hash": hash_of(key), **given}
    entries_of({"keys": [entry]}, "key")
    if args.file is not None:
        _add(args.file, entry)
    print(key)
    where = (
        f"Its entry is in {args.file}"
        if args.file
        else f"Add this to the file's list `keys`:\n{_yaml([entry])}"
    )
    print(f"This key is shown once, and kept nowhere. {where}", file=sys.stderr)
    return 0


def _check(path: Path) -> int:
    from raydiff.serve.access.files import read_keys
    from raydiff.serve.access.keys import utc_now

    now = utc_now()
    for entry in read_keys(path):
        print(f"{entry.id}: {_described(entry)}{', expired' if entry.expired(now) else ''}")
    return 0


def _described(entry: KeyEntry) -> str:
    values = entry.model_dump(exclude={"id", "hash", "models"}, exclude_none=True, mode="json")
    parts = [f"models {' '.join(entry.models)}"]
    return ", ".join([*parts, *(f"{name} {value}" for name, value in values.items())])


def _add(path: Path, entry: dict[str, Any]) -> None:
    """Append an entry in one step, so that who reads the file meanwhile sees the old or the new."""
    from raydiff.serve.access.files import read_keys
    from raydiff.serve.access.keys import entries_of

    text = ""
    if path.exists():
        kept = read_keys(path)
        entries_of({"keys": [*(_plain(k) for k in kept), entry]}, str(path))
        text = path.read_text(encoding="utf-8")
        if text and not text.endswith("\n"):
            text += "\n"
    text = text or "keys:\n"
    added = f"{text}{_yaml([entry])}"
    _require_appended(added, path, entry)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    mode = path.stat().st_mode & 0o777 if path.exists() else PRIVATE
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
            file.write(added)
        os.replace(partial, path)
    except OSError as error:
        raise InputError(f"--file {path}: cannot be written: {error.strerror}.") from None


def _require_appended(text: str, path: Path, entry: dict[str, Any]) -> None:
    """Refuse to add to a file whose end is not its list of keys (JSON, for one)."""
    import yaml

    try:
        keys = yaml.safe_load(text)["keys"]
        found = keys[-1]["id"]
    except (yaml.YAMLError, KeyError, TypeError, IndexError):
        found = None
    if found != entry["id"]:
        remedy = "Leave --file out and add the entry by hand."
        expected = "a YAML file that ends with its list of keys"
        raise UsageError(invalid("--file", expected=expected, got=str(path), remedy=remedy))


def _plain(entry: KeyEntry) -> dict[str, Any]:
    return entry.model_dump(exclude_none=True)


def _yaml(entries: list[dict[str, Any]]) -> str:
    import yaml

    return yaml.safe_dump(entries, sort_keys=False).rstrip("\n") + "\n"


def _moment(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"expected a time as 2027-01-01T00:00:00Z, got {text!r}"
        raise argparse.ArgumentTypeError(message) from None
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"expected a time with its zone, got {text!r}")
    return moment.isoformat()
