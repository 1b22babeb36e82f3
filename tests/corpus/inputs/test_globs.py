"""Patterns mean what they mean in a shell, and a pattern of directories means what is in them."""

from __future__ import annotations

import pytest

from raydiff.corpus.inputs.globs import compile_glob, is_glob


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*.parquet", "a.parquet", True),
        ("*.parquet", "b/a.parquet", False),
        ("*.parquet", "a.parquet.tmp", False),
        ("**/*.parquet", "a.parquet", True),
        ("**/*.parquet", "x/y/a.parquet", True),
        ("a/**/b.csv", "a/b.csv", True),
        ("a/**/b.csv", "a/x/y/b.csv", True),
        ("a/**/b.csv", "xa/b.csv", False),
        ("a/**", "a/b/c.csv", True),
        ("part-?.csv", "part-1.csv", True),
        ("part-?.csv", "part-10.csv", False),
        ("part-[0-3].csv", "part-2.csv", True),
        ("part-[0-3].csv", "part-4.csv", False),
        ("part-[!0-3].csv", "part-4.csv", True),
        ("part-[!0-3].csv", "part-/.csv", False),
        ("{a,b}/*.csv", "b/x.csv", True),
        ("{a,b}/*.csv", "c/x.csv", False),
        ("2024-*", "2024-05/deep/x.csv", True),
        ("2024-*", "2023-05/x.csv", False),
        ("a+b.*", "a+b.csv", True),
        ("a.*", "abcsv", False),
        ("x[.csv", "x[.csv", True),
    ],
)
def test_what_a_pattern_matches(pattern: str, name: str, matches: bool) -> None:
    assert (compile_glob(pattern).fullmatch(name) is not None) == matches


@pytest.mark.parametrize("text", ["a*", "a?b", "a[b]", "{a,b}"])
def test_special_characters_make_a_pattern(text: str) -> None:
    assert is_glob(text)
    assert not is_glob("a-b_c.parquet")
