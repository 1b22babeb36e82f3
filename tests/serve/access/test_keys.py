"""Key files: what one may hold, and that nothing of a key comes out of a refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from raydiff.errors import UsageError
from raydiff.serve.access.files import read_keys
from raydiff.serve.access.keys import entries_of, hash_of, new_key

KEY = "rd-key-of-alice"
ENTRY = {"id": "alice", "hash": hash_of(KEY)}


def file_of(tmp_path: Path, value: Any) -> Path:
    path = tmp_path / "keys.yaml"
    path.write_text(yaml.safe_dump(value))
    return path


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    entry = {**ENTRY, "models": ["tiny", "big-*"], "expires": "2030-01-01T00:00:00Z"}
    path = file_of(tmp_path, {"keys": [entry]})
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [entry]}))
    (read,) = read_keys(path)
    assert (read,) == read_keys(tmp_path / "keys.json")
    assert read.caller().may_use("big-1")
    assert not read.caller().may_use("Tiny")


def test_a_directorys_files_are_one_list(tmp_path: Path) -> None:
    other = {"id": "bob", "hash": hash_of("rd-other")}
    (tmp_path / "a").write_text(yaml.safe_dump({"keys": [ENTRY]}))
    (tmp_path / "b.json").write_text(json.dumps({"keys": [other]}))
    (tmp_path / ".hidden").write_text("no keys")
    assert [entry.id for entry in read_keys(tmp_path)] == ["alice", "bob"]
    (tmp_path / "c").write_text(yaml.safe_dump({"keys": [ENTRY]}))
    with pytest.raises(UsageError, match="alice"):
        read_keys(tmp_path)


def test_keys_are_long_and_never_the_same() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(len(key) >= 3 + 43 for key in keys)


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"id": "alice"}, "keys.0.hash"),
        ({**ENTRY, "hash": KEY}, "keys.0.hash"),
        ({**ENTRY, "id": "no spaces"}, "keys.0.id"),
        ({**ENTRY, "id": "anonymous"}, "anonymous"),
        ({**ENTRY, "request_per_minute": 1}, "keys.0"),
        ({**ENTRY, KEY: 1}, "keys.0"),
        ({**ENTRY, "requests_per_minute": 0}, "keys.0.requests_per_minute"),
        ({**ENTRY, "requests_per_minute": "60"}, "keys.0.requests_per_minute"),
        ({**ENTRY, "lane": KEY}, "keys.0.lane"),
        ({**ENTRY, "expires": "2030-01-01T00:00:00"}, "keys.0.expires"),
    ],
)
def test_a_wrong_entry_is_named_and_not_repeated(entry: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        entries_of({"keys": [entry]}, "FILE")
    assert named in str(caught.value)
    assert KEY not in str(caught.value)
    assert hash_of(KEY)[-20:] not in str(caught.value)


def test_one_key_is_not_two_callers() -> None:
    with pytest.raises(UsageError, match="same hash"):
        entries_of({"keys": [ENTRY, {**ENTRY, "id": "bob"}]}, "FILE")


@pytest.mark.parametrize("text", ["", "[]", "keys: {", "keys: rd-secret", "- rd-secret", "\x00"])
def test_what_is_no_key_file_is_refused_without_quoting_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_keys(path)
    assert "secret" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing\.yaml"):
        read_keys(tmp_path / "nothing.yaml")
