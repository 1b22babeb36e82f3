"""The models' README: its table is made from the code, its decoders resolve and run."""

from __future__ import annotations

import argparse
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

import raydiff.models
from raydiff.cli.decoding import add_decoding_arguments, decoding_from
from raydiff.config import EngineSettings
from raydiff.engine import Engine
from raydiff.families import load_spec
from raydiff.families.recognition import FAMILIES
from raydiff.models.table import family_table, masked_policies
from raydiff.request import Decoding

README = (Path(raydiff.models.__file__).parent / "README.md").read_text(encoding="utf-8")


def _between(begin: str, end: str) -> str:
    return README.split(begin, 1)[1].split(end, 1)[0]


DECODERS = re.findall(
    r"^\| (.+?) \| `(.+?)` \| `(.+?)` \|$", _between("<!-- decoders -->", "<!-- /dec"), re.M
)


def _decoding(flags: str) -> Decoding:
    parser = argparse.ArgumentParser()
    add_decoding_arguments(parser)
    return decoding_from(parser.parse_args(shlex.split(flags)))


@cache
def _engine(model: str) -> Engine:
    settings = EngineSettings(threads=1)
    return Engine.load(model, device="cpu", dtype="fp32", settings=settings)


def test_the_table_of_families_is_the_one_that_the_code_gives() -> None:
    """Else put in what `python -m raydiff.models.table` prints."""
    written = _between("<!-- families: python -m raydiff.models.table -->\n", "<!-- /families")
    assert written == family_table()
    assert len(written.splitlines()) == 2 + len(FAMILIES)


def test_the_policies_of_masked_models_are_all_named() -> None:
    assert " ".join(_between("<!-- masked -->", "<!-- /masked").split()) == masked_policies()


def test_every_policy_but_no_unknown_one_is_in_the_table_of_decoders() -> None:
    used = {_resolved(flags, model).policy for _, flags, model in DECODERS}
    every = {p for family in _models() for p in load_spec(family).policies()}
    assert used == every


def _models() -> set[str]:
    return {model for _, _, model in DECODERS}


def _resolved(flags: str, model: str) -> Decoding:
    return load_spec(model).resolve(_decoding(flags))


@pytest.mark.parametrize(
    ("flags", "model"), [row[1:] for row in DECODERS], ids=[row[0] for row in DECODERS]
)
def test_each_published_decoder_runs_on_the_model_beside_it(flags: str, model: str) -> None:
    engine = _engine(model)
    prompt = engine.tokenizer.prompt_ids("The sky")
    given = {"max_tokens": 12, "ignore_eos": True, "seed": 1}
    decoding = Decoding(**{**_decoding(flags).given(), **given})
    (completion,) = engine.generate([prompt], decoding)
    assert completion.error is None
    assert completion.usage.completion_tokens == 12
    assert engine.spec.mask_id not in completion.token_ids
