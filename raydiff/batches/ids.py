"""Names of files and batches: they sort by the time at which they were made."""

from __future__ import annotations

import re
import secrets
from hashlib import blake2b

_FILE = "file-"
_BATCH = "batch_"
_SHAPE = re.compile(r"(?:file-|batch_)[0-9a-f]{32}")


def new_file_id(now_s: float) -> str:
    """A name that nobody has."""
    return f"{_FILE}{_stamp(now_s)}{secrets.token_hex(10)}"


def new_batch_id(now_s: float) -> str:
    """A name that nobody has."""
    return f"{_BATCH}{_stamp(now_s)}{secrets.token_hex(10)}"


def made_at_s(name: str) -> float:
    """When a file or batch got its name: Unix time."""
    return int(name.rpartition("_")[2].rpartition("-")[2][:12], 16) / 1000


def result_file_id(batch_id: str, what: str) -> str:
    """The name of a batch's own file, the same whoever writes it."""
    stamp = batch_id.removeprefix(_BATCH)[:12]
    return f"{_FILE}{stamp}{_digest(f'{batch_id}/{what}', 10)}"


def line_id(batch_id: str, row: int, prefix: str) -> str:
    """The name of a line of a batch's output, the same whoever writes it."""
    return f"{prefix}{_digest(f'{batch_id}/{prefix}/{row}', 16)}"


def run_seed(batch_id: str) -> int:
    """The seed of a batch's run: lines without one of their own are as random as online."""
    return int(_digest(batch_id, 6), 16)


def is_id(name: str, kind: str) -> bool:
    """Whether a name from outside can be an id of "file" or "batch"."""
    prefix = {"file": _FILE, "batch": _BATCH}[kind]
    return name.startswith(prefix) and _SHAPE.fullmatch(name) is not None


def owner_folder(key_id: str) -> str:
    """Where the files and batches of a key are: any id makes a safe name."""
    return f"owners/{_digest(key_id, 16)}"


def _stamp(now_s: float) -> str:
    return f"{int(now_s * 1000):012x}"


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()
