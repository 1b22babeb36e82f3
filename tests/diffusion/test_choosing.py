"""Choosing among texts: the pure functions, against sums written out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from raydiff.diffusion.choosing import Options, choose, log_probabilities, marginals

Choice = tuple[int, ...]


def options(
    *rows: Sequence[Choice],
    decides: bool = False,
    temperature: float = 0.0,
    uniform: Sequence[float] = (),
) -> Options:
    """Rows of choices over open positions, padded to the largest."""
    count, width = max(map(len, rows)), max(len(row[0]) for row in rows)
    tokens = torch.zeros(len(rows), count, width, dtype=torch.long)
    groups, real = tokens.clone(), torch.zeros(len(rows), count, dtype=torch.bool)
    places = torch.zeros(len(rows), width, dtype=torch.bool)
    for s, row in enumerate(rows):
        real[s, : len(row)] = True
        places[s, : len(row[0])] = True
        for c, choice in enumerate(row):
            for p, token in enumerate(choice):
                tokens[s, c, p] = token
                groups[s, c, p] = list(dict.fromkeys(other[p] for other in row)).index(token)
    return Options(
        tokens=tokens,
        groups=groups,
        real=real,
        places=places,
        decides=torch.full((len(rows),), decides),
        temperature=torch.full((len(rows),), temperature),
        uniform=torch.tensor(uniform or [0.0] * len(rows)),
    )


def logits_of(table_SPV: Tensor, given: Options) -> Tensor:
    """Each choice's own logits out of those of the whole vocabulary."""
    return table_SPV.gather(2, given.tokens.transpose(1, 2)).transpose(1, 2)


def written_out(table_PV: Tensor, row: Sequence[Choice]) -> list[float]:
    """Probability of each choice, given that independent draws made one of them."""
    probs = table_PV.double().softmax(dim=1)
    together = [math.prod(float(probs[p, t]) for p, t in enumerate(choice)) for choice in row]
    return [value / sum(together) for value in together]


ROWS = st.lists(
    st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=2, max_size=6, unique=True),
    min_size=1,
    max_size=4,
)


@given(rows=ROWS, seed=st.integers(0, 10**6))
def test_probabilities_are_those_of_independent_draws_that_made_a_choice(
    rows: list[list[Choice]], seed: int
) -> None:
    table = torch.randn(len(rows), 3, 6, generator=torch.Generator().manual_seed(seed)) * 3
    got = log_probabilities(logits_of(table, options(*rows)), options(*rows)).exp()
    for s, row in enumerate(rows):
        assert got[s, : len(row)].tolist() == pytest.approx(written_out(table[s], row))
        assert got[s, len(row) :].sum() == 0


@given(rows=ROWS, seed=st.integers(0, 10**6))
def test_marginals_add_up_the_choices_that_share_a_token(
    rows: list[list[Choice]], seed: int
) -> None:
    table = torch.randn(len(rows), 3, 6, generator=torch.Generator().manual_seed(seed))
    padded = options(*rows)
    got = marginals(log_probabilities(logits_of(table, padded), padded), padded)
    for s, row in enumerate(rows):
        probs = written_out(table[s], row)
        for p in range(3):
            for group, token in enumerate(dict.fromkeys(choice[p] for choice in row)):
                share = sum(v for v, c in zip(probs, row, strict=True) if c[p] == token)
                assert float(got[s, p, group]) == pytest.approx(share)


def test_the_surest_position_commits_and_no_other() -> None:
    """Of (1, 2), (1, 3), (4, 3) at 0.4, 0.3, 0.3: position 0 is token 1 at 0.7, position 1 is
    token 3 at 0.6."""
    table = torch.tensor([[[0.4, 0.3, 0.3]]]).log().expand(1, 2, 3).clone()
    rows = options([(1, 2), (1, 3), (4, 3)])
    logits = table.transpose(1, 2) * torch.tensor([1.0, 0.0])
    done = choose(logits, rows)
    assert done.commit.tolist() == [[True, False]]
    assert int(done.tokens[0, 0]) == 1
    assert float(done.probability) == pytest.approx(0.7)


def test_a_row_that_decides_takes_the_most_likely_choice_whole() -> None:
    """Which need not be the one with the surest token."""
    rows = options([(1, 2), (1, 3), (4, 5)], decides=True)
    logits = torch.tensor([[0.3, 0.3, 0.4]]).log()[:, :, None] * torch.tensor([1.0, 0.0])
    done = choose(logits, rows)
    assert done.tokens.tolist() == [[4, 5]]
    assert done.commit.all()
    assert float(done.probability) == pytest.approx(0.4)


def test_ties_go_to_the_lower_position_and_the_earlier_choice() -> None:
    rows = options([(3, 2), (1, 5)], [(9, 9), (1, 5)])
    done = choose(torch.zeros(2, 2, 2), rows)
    assert done.commit.tolist() == [[True, False]] * 2
    assert done.tokens[:, 0].tolist() == [3, 9]
    whole = choose(torch.zeros(2, 2, 2), options([(3, 2), (1, 5)], [(9, 9), (1, 5)], decides=True))
    assert whole.tokens.tolist() == [[3, 2], [9, 9]]


def test_padding_changes_nothing() -> None:
    small, large = [(1, 2), (3, 4)], [(i, i + 1, 2 * i) for i in range(6)]
    logits = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(1))
    together = choose(logits, options(small, large))
    alone = choose(logits[:1, :2, :2], options(small))
    assert together.tokens[0, :2].tolist() == alone.tokens[0].tolist()
    assert together.commit[0].tolist() == [*alone.commit[0].tolist(), False]
    assert float(together.probability[0]) == pytest.approx(float(alone.probability[0]))


@pytest.mark.parametrize("decides", [False, True])
def test_above_temperature_zero_choices_come_out_as_often_as_they_are_likely(decides: bool) -> None:
    """Drawn by softmax(score / T), while the probability told is that before temperature."""
    row, draws = [(1, 2), (1, 3), (4, 3)], 2000
    scores = torch.tensor([0.0, 1.0, 2.0])
    uniform = ((torch.arange(draws) + 0.5) / draws).tolist()
    rows = options(*[row] * draws, decides=decides, temperature=2.0, uniform=uniform)
    logits = scores[None, :, None].expand(draws, 3, 2) * torch.tensor([1.0, 0.0])
    done = choose(logits, rows)
    tempered = (scores / 2).softmax(dim=0)
    plain = scores.double().softmax(dim=0)
    first = done.tokens[:, 0] == 1
    if decides:
        assert float(first.float().mean()) == pytest.approx(float(tempered[:2].sum()), abs=1e-3)
        third = done.probability[done.tokens[:, 0] == 4]
        assert third.tolist() == pytest.approx([float(plain[2])] * len(third))
    else:
        where = done.commit.int().argmax(dim=1)
        assert where.unique().tolist() == [1]  # token 3 has probability plain[1] + plain[2]
        is_three = done.tokens[:, 1] == 3
        share = float(is_three.float().mean())
        assert share == pytest.approx(float(tempered[1:].sum()), abs=1e-3)


def test_one_rows_draw_leaves_the_others_alone() -> None:
    row = [(1, 2), (3, 4)]
    logits = torch.randn(2, 2, 2, generator=torch.Generator().manual_seed(4))
    one = choose(logits, options(row, row, temperature=1.0, uniform=[0.1, 0.1]))
    other = choose(logits, options(row, row, temperature=1.0, uniform=[0.9, 0.1]))
    assert one.tokens[1].tolist() == other.tokens[1].tolist()
