"""Makes train, validation and test Parquet files (doc_id, text, summary) from Debian's package
descriptions.

    python jobs/build_corpus.py OUTPUT_DIR

Needs apt (any Debian or Ubuntu with a Debian mirror configured); writes nothing outside OUTPUT_DIR.
"""

import argparse
from pathlib import Path

from raydiff.train.corpus import build_corpus


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="directory for the Parquet files and apt's lists")
    parser.add_argument(
        "--sample", type=Path, help="also write 500 test documents, evenly spaced, to this file"
    )
    options = parser.parse_args()
    for split, rows in build_corpus(options.output, sample=options.sample).items():
        print(f"{split}: {rows} documents")


if __name__ == "__main__":
    main()
