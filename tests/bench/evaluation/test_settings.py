"""Settings from flags, from a file, and the sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raydiff.bench.evaluation.settings import (
    default_sweep,
    parse_setting,
    read_settings,
    resolve_settings,
)
from raydiff.decoding import Decoding
from raydiff.errors import DecodingError, InputError, UsageError
from raydiff.families import load_spec


def test_a_setting_is_named_by_itself_or_by_its_name() -> None:
    plain = parse_setting("policy=threshold,threshold=0.9")
    assert plain.name == "policy=threshold,threshold=0.9"
    assert plain.decoding == Decoding(policy="threshold", threshold=0.9)
    named = parse_setting("fast: steps=2, block-length=8, stop=a:b")
    assert named.name == "fast"
    assert named.decoding == Decoding(steps=2, block_length=8, stop=("a:b",))
    assert parse_setting("default").decoding == Decoding()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps", "setting: expected NAME=VALUE"),
        ("stepps=3", "stepps: expected one of"),
        ("steps=many", "steps: expected an integer of at least 1, got 'many'"),
        ("steps=0", "steps: expected an integer of at least 1, got 0"),
        ("policy=magic", "policy: expected one of"),
        ("steps=2.5", "steps: expected an integer"),
    ],
)
def test_impossible_settings_are_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(DecodingError, match=said):
        parse_setting(text)


def test_settings_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"fast": {"steps": 2}, "usual": {}}))
    assert [s.name for s in read_settings(str(path))] == ["fast", "usual"]
    path.write_text("[1]")
    with pytest.raises(InputError, match="expected an object like"):
        read_settings(str(path))
    with pytest.raises(InputError, match="cannot be read"):
        read_settings(str(tmp_path / "absent.json"))


@pytest.mark.parametrize(
    "model", ["summarizer", "random:tiny-llada", "tiny-uniform", "tiny-diffuseq", "tiny-flow"]
)
def test_every_model_has_a_sweep_that_it_can_run(model: str) -> None:
    spec = load_spec(model)
    resolved = resolve_settings(default_sweep(spec), spec)
    assert len(resolved) >= 3
    assert resolved[0].name == "default"


def test_the_sweep_of_the_summarizer() -> None:
    spec = load_spec("summarizer")
    names = [s.name for s in resolve_settings(default_sweep(spec), spec)]
    assert "threshold=0.7" in names
    assert {"steps=1", "steps=2", "steps=4"} <= set(names)


def test_settings_that_come_to_the_same_run_once() -> None:
    spec = load_spec("random:tiny-llada")
    usual = spec.resolve(Decoding())
    twins = [parse_setting("default"), parse_setting(f"steps={usual.steps}")]
    assert [s.name for s in resolve_settings(twins, spec)] == ["default"]


def test_what_the_model_cannot_do_names_the_setting() -> None:
    spec = load_spec("summarizer")
    with pytest.raises(DecodingError, match=r"setting 'big: ?steps=9999|setting 'big'"):
        resolve_settings([parse_setting("big: steps=9999")], spec)
    settings = [parse_setting("a: steps=1"), parse_setting("a: steps=2")]
    with pytest.raises(UsageError, match="names that differ"):
        resolve_settings(settings, spec)
