"""Plans or reads an input as driver and workers do, and prints the process's peak memory.

python -m tests.corpus.memory plan|read LOCATION
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from raydiff.config import CorpusSettings
from raydiff.corpus.cutting import plan_items
from raydiff.corpus.inputs import open_inputs
from raydiff.corpus.plan import Shard
from raydiff.corpus.reading import SpanReader


def main(task: str, location: str) -> None:
    """Go through the whole input, holding one shard at a time."""
    inputs = open_inputs(CorpusSettings(input=location, output="unused"))
    reader = SpanReader(inputs.folder, inputs.layout)
    rows = 0
    for item in plan_items(inputs, inputs.listing, shard_rows=256):
        if isinstance(item, Shard):
            rows += item.rows
            if task == "read":
                for span in item.spans:
                    reader.read(span)
    print(rows, peak_bytes())


def peak_bytes() -> int:
    """Peak resident memory of this program; `getrusage` counts what its parent had, too."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
