"""Arguments of `raydiff serve`."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from raydiff.cli import serve
from raydiff.errors import UsageError
from raydiff.launch import RunningApp


def arguments(*args: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    serve.add_parser(parser.add_subparsers())
    return parser.parse_args(["serve", *args])


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return str(file)


def test_it_listens_on_the_loopback_interface_unless_told_otherwise() -> None:
    assert (arguments().host, arguments().port) == ("127.0.0.1", 8000)


def test_options_become_settings() -> None:
    settings = serve.app_settings(arguments("--model", "m", "--replicas", "2", "--threads", "3"))
    assert (settings.model, settings.replicas, settings.threads) == ("m", 2, 3)


def test_a_config_file_has_the_fields_of_the_app(tmp_path: Path) -> None:
    text = "request_timeout_s: 5\nmodels:\n  - model: m\n    max_replicas: 3\n"
    settings = serve.app_settings(arguments("--config", written(tmp_path, text)))
    assert (settings.request_timeout_s, settings.models[0].max_replicas) == (5, 3)


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "model: a\nreplicas: 2\n")
    settings = serve.app_settings(arguments("--config", file, "--model", "b"))
    assert (settings.model, settings.replicas) == ("b", 2)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("modle: a\n", "modle"),
        ("models:\n  - {model: a, num_gpu: 1}\n", r"models\.0\.num_gpu"),
        ("models:\n  - {model: a, engine: {max_row: 1}}\n", r"models\.0\.engine\.max_row"),
        ("replicas: 0\n", "replicas"),
        ("replicas: many\n", "replicas"),
        ("- model\n", "mapping"),
        ("model: [\n", "cannot be read"),
    ],
)
def test_a_wrong_config_file_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        serve.app_settings(arguments("--config", written(tmp_path, text)))


def test_a_missing_config_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="absent"):
        serve.app_settings(arguments("--config", str(tmp_path / "absent.yaml")))


@pytest.mark.parametrize("args", [("--port", "70000"), ("--metrics-port", "0")])
def test_an_impossible_port_is_refused_before_anything_starts(args: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="port"):
        serve.run(arguments(*args))


def test_the_banner_says_where_everything_is() -> None:
    app = RunningApp(
        url="http://127.0.0.1:8000",
        metrics_url="http://127.0.0.1:9/metrics",
        address="10.0.0.1:6379",
        app_name="raydiff",
        models=("m",),
        started_cluster=True,
        started_app=True,
    )
    text = serve.banner(app)
    assert "http://127.0.0.1:8000/v1/completions" in text
    assert app.metrics_url in text
    assert "RAY_ADDRESS=10.0.0.1:6379" in text
