"""What there is to read: files found by one listing, their formats, columns and rows.

A file that cannot be read is refused by name before a run starts, so that no run ends with part
of its input missing.
"""

from raydiff.corpus.inputs.columns import GENERATED_ID, ID_COLUMNS, RESERVED, Columns, Wanted
from raydiff.corpus.inputs.described import InputFile, RowGroup
from raydiff.corpus.inputs.finding import require_unmatched
from raydiff.corpus.inputs.layout import InputLayout
from raydiff.corpus.inputs.listing import Listing
from raydiff.corpus.inputs.opening import (
    Inputs,
    describe_files,
    file_digest,
    open_inputs,
    open_location,
    reopen_inputs,
)

__all__ = [
    "GENERATED_ID",
    "ID_COLUMNS",
    "RESERVED",
    "Columns",
    "InputFile",
    "InputLayout",
    "Inputs",
    "Listing",
    "RowGroup",
    "Wanted",
    "describe_files",
    "file_digest",
    "open_inputs",
    "open_location",
    "reopen_inputs",
    "require_unmatched",
]
