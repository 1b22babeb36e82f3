"""Reading: from spans of input files to documents and the columns carried along."""

from raydiff.corpus.reading.column import iter_column
from raydiff.corpus.reading.reader import SpanReader, SpanRows
from raydiff.corpus.reading.texts import Rejected, decode_texts

__all__ = ["Rejected", "SpanReader", "SpanRows", "decode_texts", "iter_column"]
