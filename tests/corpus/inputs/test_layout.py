"""A layout survives being saved."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa

from raydiff.corpus.inputs import Columns, InputLayout

LAYOUT = InputLayout(
    format="parquet",
    columns=Columns(text="body.text", id="key", passed=("when", "day")),
    carried=pa.schema(
        [
            pa.field("key", pa.uuid()),
            pa.field("when", pa.timestamp("us", "UTC")),
            pa.field("day", pa.int32()),
        ]
    ),
    partitions=pa.schema([pa.field("day", pa.int32())]),
)


def test_a_layout_comes_back_from_json_and_pickle() -> None:
    assert InputLayout.from_json(json.loads(json.dumps(LAYOUT.to_json()))) == LAYOUT
    assert pickle.loads(pickle.dumps(LAYOUT)) == LAYOUT


def test_its_json_tells_types_by_name() -> None:
    assert LAYOUT.to_json()["types"]["when"] == "timestamp[us, tz=UTC]"


def test_columns_of_directories_are_not_looked_for_in_files() -> None:
    assert LAYOUT.in_files == ("key", "when")
