"""A blind side-by-side sheet: people compare texts without knowing which setting wrote which."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from raydiff.bench.evaluation.generation import Measured
from raydiff.bench.evaluation.redaction import Redaction
from raydiff.bench.sample import Document

SHEET_CSV = "sheet.csv"
SHEET_HTML = "sheet.html"
KEY_CSV = "sheet_key.csv"
_SIDES = ("A", "B")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a cell that a spreadsheet would run."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison. Texts are redacted."""

    file: str
    row: int
    document: str
    texts: tuple[str, str]
    """Under A and under B."""
    settings: tuple[str, str]
    """Which settings wrote them; for the key only."""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """What people see, and what they must not."""

    rows: tuple[Row, ...]
    same_texts: int
    """Documents left out because both settings wrote the same."""

    def files(self) -> dict[str, bytes]:
        """The sheet as CSV and HTML, and the key, by file name."""
        return {
            SHEET_CSV: _csv(
                ("row", "document", *_SIDES, "better (A, B or =)", "comment"),
                [
                    (str(number), row.document, *row.texts, "", "")
                    for number, row in enumerate(self.rows, 1)
                ],
            ),
            SHEET_HTML: _html(self.rows).encode(),
            KEY_CSV: _csv(
                ("row", "source_file", "source_row", *_SIDES),
                [
                    (str(number), row.file, str(row.row), *row.settings)
                    for number, row in enumerate(self.rows, 1)
                ],
            ),
        }


def make_sheet(
    documents: Sequence[Document],
    pair: tuple[Measured, Measured],
    *,
    count: int,
    seed: int,
    redact: Redaction,
) -> Sheet:
    """Draw `count` documents that both settings wrote different texts for.

    Which text is A is drawn anew for each row, from `seed`.
    """
    draw = random.Random(f"{seed} sheet")
    outcomes = [one.outcomes for one in pair]
    texts = [(outcomes[0][i].text, outcomes[1][i].text) for i in range(len(documents))]
    done = [i for i, both in enumerate(texts) if None not in both]
    differing = [i for i in done if texts[i][0] != texts[i][1]]
    taken = sorted(draw.sample(differing, min(count, len(differing))))
    rows = []
    for i in taken:
        order = draw.sample((0, 1), 2)
        document = documents[i]
        shown = [redact(texts[i][side] or "") for side in order]
        names = [pair[side].setting.name for side in order]
        rows.append(
            Row(
                file=document.file,
                row=document.row,
                document=redact(str(document.text)),
                texts=(shown[0], shown[1]),
                settings=(names[0], names[1]),
            )
        )
    return Sheet(rows=tuple(rows), same_texts=len(done) - len(differing))


def _csv(head: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    held = io.StringIO()
    writer = csv.writer(held)
    writer.writerow(head)
    writer.writerows([_cell(value) for value in row] for row in rows)
    # spreadsheets take UTF-8 for what it is only with this mark
    return ("\ufeff" + held.getvalue()).encode()


def _cell(value: str) -> str:
    return f"'{value}" if value.startswith(_FORMULA) else value


_STYLE = (
    "body{font:15px sans-serif;margin:2em;max-width:80em}td,th{vertical-align:top;padding:.6em;"
    "border-top:1px solid #ccc;text-align:left;white-space:pre-wrap}td.d{width:50%;color:#555}"
)


def _html(rows: Sequence[Row]) -> str:
    lines = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Which is better?</title>',
        f"<style>{_STYLE}</style><h1>Which is better, A or B?</h1>",
        f"<p>The order of A and B is drawn anew in each row. Write answers into {SHEET_CSV}.</p>",
        "<table><tr><th>row</th><th>document</th><th>A</th><th>B</th></tr>",
    ]
    for number, row in enumerate(rows, 1):
        a, b = (f"<td>{escape(text)}</td>" for text in row.texts)
        lines.append(f'<tr><td>{number}</td><td class="d">{escape(row.document)}</td>{a}{b}</tr>')
    return "\n".join([*lines, "</table></html>\n"])
