"""Keys of a checkpoint become places in the module, by the first rule that matches."""

from __future__ import annotations

from raydiff.families import KeyRule
from raydiff.models.keys import KeyMap, Place


def test_a_key_that_no_rule_matches_is_kept() -> None:
    assert KeyMap((KeyRule(pattern="a", targets=("b",)),), {}).places("ab") == (Place("ab"),)


def test_a_rule_renames_with_the_groups_of_its_pattern() -> None:
    rule = KeyRule(pattern=r"blocks\.(\d+)\.(\w+)", targets=(r"layers.\1.self_attn.\2",))
    assert KeyMap((rule,), {}).places("blocks.12.q") == (Place("layers.12.self_attn.q"),)


def test_the_first_matching_rule_wins() -> None:
    first = KeyRule(pattern=r"a.*", targets=("first",))
    second = KeyRule(pattern=r"ab", targets=("second",))
    assert KeyMap((first, second), {}).places("ab") == (Place("first"),)


def test_a_rule_without_targets_ignores_the_tensor() -> None:
    assert KeyMap((KeyRule(pattern=r"pooler\..*", targets=()),), {}).places("pooler.bias") == ()


def test_one_tensor_is_split_by_the_sizes_that_the_config_gives() -> None:
    rule = KeyRule(
        pattern=r"qkv",
        targets=("q", "k", "v"),
        sizes=lambda config: (config["wide"], config["narrow"], config["narrow"]),
    )
    places = KeyMap((rule,), {"wide": 4, "narrow": 1}).places("qkv")
    assert [(p.target, p.rows, p.rows_in_all) for p in places] == [
        ("q", (0, 4), 6),
        ("k", (4, 5), 6),
        ("v", (5, 6), 6),
    ]


def test_experts_are_counted_by_their_group_and_halves_by_their_part() -> None:
    rule = KeyRule(
        pattern=r"(\d+)\.experts\.(\d+)\.up", targets=(r"\1.gate_up",), stack=2, part=(1, 2)
    )
    assert KeyMap((rule,), {}).places("3.experts.17.up") == (
        Place("3.gate_up", expert=17, part=(1, 2)),
    )
