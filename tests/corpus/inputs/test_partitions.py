"""`key=value` directories are columns with types."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from raydiff.corpus.inputs.partitions import partition_types, partition_values
from raydiff.errors import InputError

from ..conftest import WriteCorpus
from .conftest import OpenInputs, facts_of


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["2024", "-7"], pa.int32()),
        (["2024", "9999999999"], pa.int64()),
        (["2024", "x"], pa.string()),
        (["2024", "__HIVE_DEFAULT_PARTITION__"], pa.int32()),
        (["__HIVE_DEFAULT_PARTITION__"], pa.string()),
        (["2024-05-06"], pa.string()),
        (["1.5"], pa.string()),
    ],
)
def test_a_key_has_the_type_that_all_its_values_have(values: list[str], kind: pa.DataType) -> None:
    assert partition_types(f"k={value}/a.parquet" for value in values) == {"k": kind}


def test_values_are_those_that_pyarrow_reads(tmp_path: Path, write_corpus: WriteCorpus) -> None:
    names = [
        "year=2024/lang=a%20b%2Fc/x.parquet",
        "year=__HIVE_DEFAULT_PARTITION__/lang=d/x.parquet",
    ]
    for name in names:
        write_corpus(tmp_path / name, ["one"])
    types = partition_types(names)
    schema = pa.schema([pa.field(key, kind) for key, kind in types.items()])
    expected = ds.dataset(tmp_path, partitioning="hive").to_table().sort_by("lang")
    found = sorted(
        (partition_values(name, schema, name) for name in names), key=lambda v: v["lang"]
    )
    assert found == expected.select(schema.names).to_pylist()
    assert expected.schema.field("year").type == types["year"]


def test_a_file_outside_of_the_directories_has_nulls() -> None:
    schema = pa.schema([pa.field("year", pa.int32())])
    assert partition_values("x.parquet", schema, "x.parquet") == {"year": None}


def test_a_value_of_another_type_is_refused_by_name() -> None:
    schema = pa.schema([pa.field("year", pa.int32())])
    with pytest.raises(InputError, match=r"/in/year=late/x\.parquet.*year: int32"):
        partition_values("year=late/x.parquet", schema, "/in/year=late/x.parquet")


def test_a_partition_can_be_passed_or_be_the_id(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    write_corpus(tmp_path / "site=a" / "day=1" / "x.parquet", ["one"])
    write_corpus(tmp_path / "site=b" / "day=2" / "x.parquet", ["two"])
    inputs = opened(tmp_path, id_column="site", pass_columns=("day",))
    assert inputs.layout.carried == pa.schema(
        [pa.field("site", pa.string()), pa.field("day", pa.int32())]
    )
    assert inputs.layout.partitions == inputs.layout.carried
    assert len(facts_of(inputs)) == 2


def test_a_column_in_the_file_wins_over_one_in_its_path(
    tmp_path: Path, write_corpus: WriteCorpus, opened: OpenInputs
) -> None:
    write_corpus(tmp_path / "day=1" / "x.parquet", ["one"], day=["Monday"])
    layout = opened(tmp_path, pass_columns=("day",)).layout
    assert layout.carried.field("day").type == pa.string()
    assert layout.partitions.names == []
