"""The keys in force follow their file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from raydiff.serve.access.keyring import Keyring
from raydiff.serve.access.keys import hash_of


class Clock:
    """Goes when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def write(path: Path, *ids: str, **more: str) -> None:
    """Keys `key-ID`, in one step, as `raydiff keys new` and editors do."""
    keys = [{"id": i, "hash": hash_of(f"key-{i}"), **more} for i in ids]
    partial = path.with_name(".partial")
    partial.write_text(yaml.safe_dump({"keys": keys}))
    partial.replace(path)


async def ids_in_force(keyring: Keyring, *ids: str) -> set[str]:
    found = [await keyring.find(f"key-{i}") for i in ids]
    return {caller.key_id for caller in found if caller is not None}


async def test_a_key_is_its_caller_and_nothing_else_is(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    write(path, "alice", "bob")
    keyring = Keyring(path, reload_s=1)
    assert await ids_in_force(keyring, "alice", "bob", "carl") == {"alice", "bob"}
    for wrong in ("", "key-", "key-alice ", hash_of("key-alice"), "KEY-ALICE"):
        assert await keyring.find(wrong) is None


async def test_keys_come_and_go_with_the_file(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys", Clock()
    write(path, "alice", "bob")
    keyring = Keyring(path, reload_s=1, clock=clock)
    write(path, "bob", "carl")
    assert await ids_in_force(keyring, "alice", "bob", "carl") == {"alice", "bob"}
    clock.now_s = 1.0
    assert await ids_in_force(keyring, "alice", "bob", "carl") == {"bob", "carl"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text("keys: [rd-secret"),
        lambda path: path.write_text("keys: [{id: x, hash: rd-secret}]"),
        lambda path: path.unlink(),
    ],
)
async def test_a_broken_file_leaves_the_keys_as_they_were_and_is_logged_without_its_content(
    tmp_path: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    path, clock = tmp_path / "keys", Clock()
    write(path, "alice")
    keyring = Keyring(path, reload_s=1, clock=clock)
    damage(path)
    for _ in range(3):
        clock.now_s += 1
        assert await ids_in_force(keyring, "alice") == {"alice"}
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "secret" not in caplog.text
    write(path, "bob")
    clock.now_s += 1
    assert await ids_in_force(keyring, "alice", "bob") == {"bob"}


async def test_a_mounted_secret_is_followed_through_its_swapped_link(tmp_path: Path) -> None:
    """Kubernetes writes a new directory and points `..data` at it."""
    mount, clock = tmp_path / "mount", Clock()
    for version, name in ((1, "alice"), (2, "bob")):
        (mount / f"..{version}").mkdir(parents=True)
        write(mount / f"..{version}" / "keys.yaml", name)
    (mount / "..data").symlink_to("..1")
    (mount / "keys.yaml").symlink_to("..data/keys.yaml")
    rings = [Keyring(p, reload_s=1, clock=clock) for p in (mount, mount / "keys.yaml")]
    for keyring in rings:
        assert await ids_in_force(keyring, "alice", "bob") == {"alice"}
    (mount / "..new").symlink_to("..2")
    os.replace(mount / "..new", mount / "..data")
    clock.now_s = 1.0
    for keyring in rings:
        assert await ids_in_force(keyring, "alice", "bob") == {"bob"}


async def test_a_key_stops_working_when_it_expires(tmp_path: Path) -> None:
    path, now = tmp_path / "keys", datetime(2030, 1, 1, tzinfo=UTC)
    write(path, "alice", expires=(now + timedelta(seconds=5)).isoformat())
    moments = [now, now + timedelta(seconds=5)]
    keyring = Keyring(path, reload_s=100, now=lambda: moments.pop(0))
    assert await ids_in_force(keyring, "alice") == {"alice"}
    assert await ids_in_force(keyring, "alice") == set()
