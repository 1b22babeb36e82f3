"""A location means a file, a directory or a pattern; what is found is the same in every store."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydiff.config import StorageSettings
from raydiff.corpus.inputs import require_unmatched
from raydiff.errors import InputError
from raydiff.storage import open_folder

from ..conftest import WriteCorpus
from .conftest import OpenInputs, names_of


def test_no_such_path(tmp_path: Path, opened: OpenInputs) -> None:
    with pytest.raises(InputError, match="no such path"):
        opened(tmp_path / "absent")


def test_a_directory_without_data_says_what_names_are_read(
    tmp_path: Path, opened: OpenInputs
) -> None:
    (tmp_path / "readme.txt").write_text("not data")
    with pytest.raises(InputError, match=r"no file whose name ends in \.parquet, \.jsonl"):
        opened(tmp_path)


def test_a_store_that_is_not_supported_is_named(opened: OpenInputs) -> None:
    with pytest.raises(InputError, match="gs://"):
        opened("gs://bucket/corpus")


def test_files_are_found_at_any_depth_but_not_hidden_ones(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    for name in ("b.parquet", "a/c.parquet", ".tmp-x.parquet", "_old/d.parquet", "e/_f.parquet"):
        write_corpus(tmp_path / name, ["one"])
    (tmp_path / "readme.txt").write_text("not data")
    assert names_of(opened(tmp_path)) == ["a/c.parquet", "b.parquet"]


def test_a_hidden_directory_is_read_when_it_is_named(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    write_corpus(tmp_path / "_raw" / "a.parquet", ["one"])
    assert names_of(opened(tmp_path / "_raw")) == ["a.parquet"]


def test_a_single_parquet_file_may_have_any_name(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    inputs = opened(write_corpus(tmp_path / "corpus.data", ["one", "two"]))
    assert (inputs.folder.uri, names_of(inputs)) == (str(tmp_path), ["corpus.data"])


def test_a_single_file_of_no_known_format_is_refused(tmp_path: Path, opened: OpenInputs) -> None:
    (tmp_path / "notes.txt").write_text("text")
    with pytest.raises(InputError, match=r"notes\.txt"):
        opened(tmp_path / "notes.txt")


@pytest.mark.parametrize(
    ("pattern", "output", "refused"),
    [
        ("/data/**", "/data/out", True),
        ("/data/**/*.parquet", "/data/x/out", True),
        ("/data/*", "/data/out", True),
        ("/data/*/*/*.parquet", "/data/out", True),
        ("s3://bucket/data/*", "s3://bucket/data/out", True),
        ("/data/*.parquet", "/data/out", False),
        ("/data/**", "/data/_out", False),
        ("/data/**/*.jsonl", "/data/out", False),
        ("/data/**", "/elsewhere/out", False),
        ("s3://bucket/data/*", "/data/out", False),
        ("/data/in", "/data/in/out", False),
    ],
)
def test_an_output_that_a_pattern_matches_is_refused(
    pattern: str, output: str, refused: bool
) -> None:
    source, folder = (open_folder(place, "x", StorageSettings()) for place in (pattern, output))
    with pytest.raises(InputError, match="matches the input") if refused else nullcontext():
        require_unmatched(folder, source)


def test_a_pattern_chooses_among_files(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    for name in ("x/a-1.parquet", "x/a-2.parquet", "x/b-1.parquet", "y/a-1.parquet"):
        write_corpus(tmp_path / name, ["one"])
    inputs = opened(f"{tmp_path}/*/a-[12].parquet")
    assert inputs.folder.uri == str(tmp_path)
    assert names_of(inputs) == ["x/a-1.parquet", "x/a-2.parquet", "y/a-1.parquet"]
    assert names_of(opened(f"{tmp_path}/{{x,z}}/**")) == [
        "x/a-1.parquet",
        "x/a-2.parquet",
        "x/b-1.parquet",
    ]


def test_a_pattern_that_matches_nothing_is_refused(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    write_corpus(tmp_path / "a.parquet", ["one"])
    with pytest.raises(InputError, match="b-"):
        opened(f"{tmp_path}/b-*.parquet")


@pytest.mark.parametrize("place", ["odd[1].parquet", "odd[1]/a.parquet"])
def test_a_name_with_special_characters_is_taken_literally_where_it_exists(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs, place: str
) -> None:
    path = write_corpus(tmp_path / place, ["one"])
    location = path if place.startswith("odd[1].") else path.parent
    assert names_of(opened(location)) == [path.name]


def test_names_begin_above_hive_directories_however_the_input_is_named(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    path = write_corpus(tmp_path / "year=2024" / "_m=5" / "a.parquet", ["one"])
    for location in (tmp_path, tmp_path / "year=2024", path, f"{tmp_path}/year=*/_m=5"):
        inputs = opened(location)
        assert (inputs.folder.uri, names_of(inputs)) == (
            str(tmp_path),
            ["year=2024/_m=5/a.parquet"],
        )


def test_a_relative_path_works(
    tmp_path: Path,
    write_corpus: WriteCorpus,
    opened: OpenInputs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_corpus(tmp_path / "data" / "a.parquet", ["one"])
    monkeypatch.chdir(tmp_path)
    for location in ("data", "./data", "data/a.parquet", "d*/*.parquet"):
        assert [name.rpartition("/")[2] for name in names_of(opened(location))] == ["a.parquet"]
    monkeypatch.chdir(tmp_path / "data")
    assert names_of(opened("a.parquet")) == names_of(opened(".")) == ["a.parquet"]


def test_files_of_several_formats_are_refused_with_an_example_of_each(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    write_corpus(tmp_path / "a.parquet", ["one"])
    (tmp_path / "b.csv.gz").write_text("")
    with pytest.raises(InputError, match=r"csv \(b\.csv\.gz\) and parquet \(a\.parquet\)"):
        opened(tmp_path)
    assert names_of(opened(f"{tmp_path}/*.parquet")) == ["a.parquet"]


def test_parquet_compressed_as_a_whole_is_refused(tmp_path: Path, opened: OpenInputs) -> None:
    (tmp_path / "a.parquet.gz").write_text("")
    with pytest.raises(InputError, match=r"a\.parquet\.gz.*Decompress it"):
        opened(tmp_path)


def test_files_come_in_the_order_of_their_names(tmp_path: Path, opened: OpenInputs) -> None:
    table = pa.table({"text": ["x"]})
    names = [f"{i:02}.parquet" for i in range(20)] + ["a/0.parquet", "Z.parquet", "é.parquet"]
    for name in reversed(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / name)
    assert names_of(opened(tmp_path)) == sorted(names)
