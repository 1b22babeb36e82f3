"""Fetches Debian's descriptions through apt and writes them as Parquet splits."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from raydiff.train.debian import Pair, Split, read_pairs, split_of

SAMPLE_ROWS = 500
SCHEMA = pa.schema([("doc_id", pa.string()), ("text", pa.string()), ("summary", pa.string())])


def build_corpus(output: Path, sample: Path | None = None) -> dict[Split, int]:
    """Writes `{train,validation,test}.parquet` under `output`; returns each split's number of
    documents.
    """
    splits: dict[Split, list[Pair]] = {"train": [], "validation": [], "test": []}
    for pair in read_pairs(fetch_translations(output / "apt")):
        splits[split_of(pair.text)].append(pair)
    for name, pairs in splits.items():
        write_pairs(output / f"{name}.parquet", pairs)
    if sample is not None:
        write_pairs(sample, evenly(splits["test"], SAMPLE_ROWS))
    return {name: len(pairs) for name, pairs in splits.items()}


def fetch_translations(state: Path) -> list[Path]:
    """Lets apt fetch and verify `Translation-en` into `state`, apart from the machine's own lists;
    returns plain files.
    """
    lists, cache = (state / "lists").absolute(), (state / "cache").absolute()
    for folder in (lists / "partial", cache / "archives" / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    options = [f"Dir::State::Lists={lists}", f"Dir::Cache={cache}", "Acquire::Languages=en"]
    subprocess.run(
        ["apt-get", *(part for option in options for part in ("-o", option)), "update"], check=True
    )
    plain = []
    # Shortest name first: the release itself before its updates and security additions.
    for packed in sorted(
        lists.glob("*Translation-en*"), key=lambda path: (len(path.name), path.name)
    ):
        target = state / f"{packed.name}.txt"
        with target.open("wb") as sink:
            subprocess.run(
                ["/usr/lib/apt/apt-helper", "cat-file", str(packed)], stdout=sink, check=True
            )
        plain.append(target)
    if not plain:
        raise FileNotFoundError(
            f"apt fetched no Translation-en into {lists}: is a Debian mirror configured?"
        )
    return plain


def write_pairs(path: Path, pairs: Sequence[Pair]) -> None:
    """Writes pairs as one Parquet file with the columns of `SCHEMA`."""
    columns = {name: [getattr(pair, name) for pair in pairs] for name in SCHEMA.names}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pydict(columns, schema=SCHEMA), path, compression="zstd")


def read_split(path: Path) -> list[Pair]:
    """Reads a file written by `write_pairs`."""
    table = pq.read_table(path, schema=SCHEMA)
    return [Pair(**row) for row in table.to_pylist()]


def evenly(pairs: Sequence[Pair], count: int) -> list[Pair]:
    """`count` pairs evenly spaced over a sequence, the same ones each time."""
    if len(pairs) <= count:
        return list(pairs)
    return [pairs[index * len(pairs) // count] for index in range(count)]
