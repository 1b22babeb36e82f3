"""The blind sheet."""

from __future__ import annotations

import csv
import io

from raydiff.bench.evaluation.generation import Measured, Outcome, Round
from raydiff.bench.evaluation.settings import Setting
from raydiff.bench.evaluation.sheet import KEY_CSV, SHEET_CSV, SHEET_HTML, Sheet, make_sheet
from raydiff.bench.sample import Document
from raydiff.corpus.commit import Totals
from raydiff.decoding import Decoding


def measured(name: str, texts: list[str | None]) -> Measured:
    outcomes = tuple(Outcome(text=text, error_type=None, totals=Totals()) for text in texts)
    setting = Setting(name=name, decoding=Decoding())
    return Measured(setting=setting, rounds=[Round(outcomes=outcomes, seconds=1.0)])


def documents(count: int) -> list[Document]:
    return [
        Document(file="f", row=i, text=f"document {i} of a@b.org", reference=None, run=0)
        for i in range(count)
    ]


def sheet(count: int = 40, seed: int = 0) -> Sheet:
    pair = (
        measured("slow", [f"slow {i}" for i in range(40)]),
        measured("quick", [f"quick {i}" for i in range(40)]),
    )
    return make_sheet(documents(40), pair, count=count, seed=seed, redact=str)


def read(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))


def test_the_key_alone_tells_who_wrote_what() -> None:
    files = sheet().files()
    shown, key = read(files[SHEET_CSV]), read(files[KEY_CSV])
    assert len(shown) == len(key) == 40
    for row, answer in zip(shown, key, strict=True):
        assert row["row"] == answer["row"]
        for side in "AB":
            assert row[side] == f"{answer[side]} {answer['source_row']}"
    head = files[SHEET_CSV].decode().splitlines()[0]
    assert "slow" not in head
    assert "slow" not in files[SHEET_HTML].decode().split("<table>")[0]


def test_the_order_is_drawn_anew_in_each_row() -> None:
    sides = [row.settings[0] for row in sheet().rows]
    assert 10 <= sides.count("slow") <= 30
    assert [row.settings for row in sheet(seed=1).rows] != [row.settings for row in sheet().rows]
    assert sheet() == sheet()


def test_only_documents_with_two_different_texts_are_shown() -> None:
    pair = (
        measured("one", ["same", None, "a", "c"]),
        measured("two", ["same", "x", "b", "d"]),
    )
    found = make_sheet(documents(4), pair, count=9, seed=0, redact=str)
    assert [row.row for row in found.rows] == [2, 3]
    assert found.same_texts == 1


def test_every_text_goes_through_the_redaction() -> None:
    pair = (measured("one", ["call a@b.org"]), measured("two", ["ask a@b.org"]))
    found = make_sheet(
        documents(1), pair, count=1, seed=0, redact=lambda text: text.replace("a@b.org", "[]")
    )
    content = b"".join(found.files().values()).decode()
    assert "[]" in content
    assert "a@b.org" not in content


def test_texts_cannot_run_in_a_spreadsheet_or_a_browser() -> None:
    pair = (measured("one", ["=cmd()"]), measured("two", ["<script>x</script>"]))
    files = make_sheet(documents(1), pair, count=1, seed=0, redact=str).files()
    (row,) = read(files[SHEET_CSV])
    assert {row["A"], row["B"]} == {"'=cmd()", "<script>x</script>"}
    assert b"<script>" not in files[SHEET_HTML]
