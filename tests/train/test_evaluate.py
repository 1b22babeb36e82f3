"""ROUGE and the extraction baselines."""

from raydiff.train.debian import Pair
from raydiff.train.evaluate import baselines, distinct, first_sentence, rouge


def test_rouge_is_100_for_equal_texts_and_0_for_disjoint_ones() -> None:
    assert rouge(["a b c"], ["a b c"]) == {"rouge1": 100, "rouge2": 100, "rougeL": 100}
    assert rouge(["a b c"], ["x y z"]) == {"rouge1": 0, "rouge2": 0, "rougeL": 0}


def test_rouge_is_the_mean_over_documents() -> None:
    assert rouge(["a b", "x y"], ["a b", "c d"])["rougeL"] == 50


def test_a_first_sentence_ends_at_a_full_stop_or_a_line() -> None:
    assert first_sentence("One v1.2 thing. Two.") == "One v1.2 thing."
    assert first_sentence("A title\nA body.") == "A title"


def test_the_three_baselines_are_extracts() -> None:
    text = " ".join(f"w{index}" for index in range(15)) + ". Next."
    extracts = baselines([text])
    assert extracts["first 12 words"] == [" ".join(f"w{index}" for index in range(12))]
    assert extracts["first sentence cut at 12 words"] == extracts["first 12 words"]
    assert extracts["first sentence"] == [text.removesuffix(" Next.")]


def test_of_documents_with_one_beginning_the_first_counts() -> None:
    start = "Alpha is a cross-platform framework for things, many of them big"
    pairs = [Pair("a", start, "x"), Pair("b", start + " (docs)", "y"), Pair("c", "Other", "z")]
    assert [pair.doc_id for pair in distinct(pairs)] == ["a", "c"]
