"""Tokenised documents and the order in which training visits them: a pure function of seed and
step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from raydiff.train.debian import Pair, beginning
from raydiff.train.tokenizer import BEGIN_ID, END_ID

Ints = npt.NDArray[np.int64]

GROUP_CAP = 2
BATCHES_SORTED_TOGETHER = 50


@dataclass(frozen=True)
class TokenisedPairs:
    """Documents and summaries as token ids without special tokens; `groups` numbers shared
    beginnings.
    """

    documents: list[Ints]
    summaries: list[Ints]
    groups: Ints

    def save(self, path: Path) -> None:
        """Writes one compressed file; `load` reads it back."""
        np.savez_compressed(
            path,
            documents=np.concatenate(self.documents).astype(np.uint16),
            document_lengths=np.array([len(row) for row in self.documents]),
            summaries=np.concatenate(self.summaries).astype(np.uint16),
            summary_lengths=np.array([len(row) for row in self.summaries]),
            groups=self.groups,
        )

    @staticmethod
    def load(path: Path) -> TokenisedPairs:
        """Reads what `save` wrote."""
        with np.load(path) as stored:
            return TokenisedPairs(
                documents=_split(stored["documents"], stored["document_lengths"]),
                summaries=_split(stored["summaries"], stored["summary_lengths"]),
                groups=stored["groups"],
            )


def tokenise_pairs(tokenizer: Tokenizer, pairs: Sequence[Pair]) -> TokenisedPairs:
    """Encodes pairs; a literal special token in a text is encoded as ordinary bytes."""
    tokenizer.encode_special_tokens = True
    numbers: dict[str, int] = {}
    groups = [numbers.setdefault(beginning(pair.text), len(numbers)) for pair in pairs]
    return TokenisedPairs(
        documents=_encode(tokenizer, [pair.text for pair in pairs]),
        summaries=_encode(tokenizer, [pair.summary for pair in pairs]),
        groups=np.array(groups, dtype=np.int64),
    )


def epoch_batches(
    pairs: TokenisedPairs, batch_rows: int, document_tokens: int, seed: int, epoch: int
) -> list[Ints]:
    """One epoch's batches of row numbers: documents of like length together, in random order.

    Of documents that share a beginning at most `GROUP_CAP` are drawn per epoch, others the next
    time.
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(pairs.groups))
    taken: defaultdict[int, int] = defaultdict(int)
    drawn = []
    for row, group in zip(order.tolist(), pairs.groups[order].tolist(), strict=True):
        if taken[group] < GROUP_CAP:
            taken[group] += 1
            drawn.append(row)
    lengths = np.minimum([len(document) for document in pairs.documents], document_tokens)
    batches: list[Ints] = []
    run = batch_rows * BATCHES_SORTED_TOGETHER
    for start in range(0, len(drawn) - batch_rows + 1, run):
        rows = np.array(drawn[start : start + run])
        rows = rows[: len(rows) // batch_rows * batch_rows]
        rows = rows[np.argsort(lengths[rows], kind="stable")]
        parts = rows.reshape(-1, batch_rows)
        batches.extend(parts[index] for index in generator.permutation(len(parts)))
    return batches


def prompt(document: Ints, document_tokens: int) -> Ints:
    """A document cut to `document_tokens`, between its begin and end tokens."""
    return np.concatenate([[BEGIN_ID], document[:document_tokens], [END_ID]])


def _encode(tokenizer: Tokenizer, texts: list[str]) -> list[Ints]:
    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    return [np.array(encoding.ids, dtype=np.int64) for encoding in encoded]


def _split(flat: npt.NDArray[np.uint16], lengths: Ints) -> list[Ints]:
    return np.split(flat.astype(np.int64), np.cumsum(lengths)[:-1])
