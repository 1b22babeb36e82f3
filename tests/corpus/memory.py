"""Plans or reads an input as driver and workers do, and prints the process's peak memory.

python -m tests.corpus.memory plan|read LOCATION
"""

from __future__ import annotations

import resource
import sys

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
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(rows, peak_bytes)


if __name__ == "__main__":
    main(*sys.argv[1:])
