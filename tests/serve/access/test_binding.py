"""Beyond loopback an endpoint has keys, or its owner has said that it needs none."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from raydiff.cli import main
from raydiff.config import AccessSettings, AppSettings, ServeSettings
from raydiff.errors import UsageError
from raydiff.launch import running_app
from raydiff.launch.serve_config import check_serve_config
from raydiff.serve.access import check_binding
from tests.serve.access.conftest import write_keys

EVERYWHERE = ("0.0.0.0", "::", "", "10.1.2.3", "no-such-name.invalid")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", None])
def test_loopback_needs_no_keys(host: str | None) -> None:
    check_binding(AccessSettings(), host)


@pytest.mark.parametrize("host", EVERYWHERE)
def test_other_addresses_need_keys_or_a_word(host: str) -> None:
    with pytest.raises(UsageError, match="anonymous"):
        check_binding(AccessSettings(), host)
    check_binding(AccessSettings(anonymous="allowed"), host)
    check_binding(AccessSettings(keys_file="keys"), host)


def test_keys_and_the_word_that_none_are_needed_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="anonymous"):
        check_binding(AccessSettings(keys_file="keys", anonymous="allowed"), "127.0.0.1")


def test_the_command_refuses_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--host", "0.0.0.0"]) == 2
    assert "--allow-anonymous" in capsys.readouterr().err
    missing = str(tmp_path / "missing.yaml")
    assert main(["serve", "--keys-file", missing]) == 2
    assert missing in capsys.readouterr().err


def test_an_app_in_python_is_refused_too() -> None:
    with (
        pytest.raises(UsageError, match="host"),
        running_app(AppSettings(), ServeSettings(host="0.0.0.0")),
    ):
        pass


@pytest.mark.parametrize(
    ("http", "access", "refused"),
    [
        ({}, {}, True),
        ({"host": "0.0.0.0"}, {}, True),
        ({"host": "127.0.0.1"}, {}, False),
        ({}, {"anonymous": "allowed"}, False),
        ({}, {"keys_file": "keys.yaml"}, False),
    ],
)
def test_a_serve_config_is_checked_with_serves_own_default_of_all_interfaces(
    http: dict[str, str], access: dict[str, str], refused: bool
) -> None:
    application = {
        "name": "raydiff",
        "import_path": "raydiff.serve.app:build_app",
        "args": {"access": access},
    }
    config = {"http_options": http, "applications": [application]}
    if refused:
        with pytest.raises(UsageError, match="anonymous"):
            check_serve_config(config)
    else:
        check_serve_config(config)


def test_keys_made_by_the_command_are_in_its_file_as_hashes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys.yaml"
    for name in ("alice", "bob"):
        args = ["--requests-per-minute", "60", "--models", "small", "--file", str(path)]
        assert main(["keys", "new", "--id", name, *args]) == 0
    first, second = capsys.readouterr().out.split()
    text = path.read_text()
    assert first not in text
    assert second not in text
    assert [key["id"] for key in yaml.safe_load(text)["keys"]] == ["alice", "bob"]
    assert main(["keys", "check", str(path)]) == 0
    assert "requests_per_minute 60" in capsys.readouterr().out
    assert main(["keys", "new", "--id", "alice", "--file", str(path)]) == 2
    assert main(["keys", "new", "--id", "a b"]) == 2
    assert path.read_text() == text
    write_keys(path, {"id": "alice", "modles": ["x"]})
    assert main(["keys", "check", str(path)]) == 2
