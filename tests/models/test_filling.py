"""Tensors find their places in the module, and all that does not fit is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from raydiff.errors import ModelError
from raydiff.families import KeyRule
from raydiff.models.filling import NAMED, fill_from
from raydiff.models.keys import KeyMap
from raydiff.models.slots import open_slots

EXPERTS, WIDE, NARROW = 3, 4, 2
CPU = torch.device("cpu")

RULES = (
    KeyRule(pattern=r"old\.(.*)", targets=(r"\1",)),
    KeyRule(
        pattern=r"qkv\.weight",
        targets=("q.weight", "k.weight"),
        sizes=lambda config: (config["wide"], config["narrow"]),
    ),
    KeyRule(pattern=r"experts\.(\d+)\.gate", targets=("gate_up",), stack=1, part=(0, 2)),
    KeyRule(pattern=r"experts\.(\d+)\.up", targets=("gate_up",), stack=1, part=(1, 2)),
    KeyRule(pattern=r"pooler\..*", targets=()),
)


class Toy(nn.Module):
    """A renamed tensor, one split in two, stacked experts, a buffer and tied weights."""

    bias: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, WIDE)
        self.head = nn.Linear(WIDE, 5, bias=False)
        self.head.weight = self.embed.weight
        self.q = nn.Linear(WIDE, WIDE, bias=False)
        self.k = nn.Linear(WIDE, NARROW, bias=False)
        self.gate_up = nn.Parameter(torch.empty(EXPERTS, 2 * NARROW, WIDE))
        self.register_buffer("bias", torch.empty(EXPERTS))


def tensors() -> dict[str, Tensor]:
    """A checkpoint of a Toy, in other names."""
    generator = torch.Generator().manual_seed(0)

    def made(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    experts = {
        f"experts.{i}.{part}": made(NARROW, WIDE) for i in range(EXPERTS) for part in ("gate", "up")
    }
    return {
        "old.embed.weight": made(5, WIDE),
        "qkv.weight": made(WIDE + NARROW, WIDE),
        "bias": made(EXPERTS),
        "pooler.weight": made(1),
        **experts,
    }


def load(folder: Path, checkpoint: dict[str, Tensor]) -> Toy:
    save_file(checkpoint, folder / "model.safetensors")
    with torch.device("meta"):
        toy = Toy()
    slots = open_slots(toy, lambda key, tensor: torch.empty(tensor.shape))
    fill_from(folder, slots, KeyMap(RULES, {"wide": WIDE, "narrow": NARROW}), CPU)
    return toy


def test_tensors_are_renamed_split_and_stacked(tmp_path: Path) -> None:
    given = tensors()
    toy = load(tmp_path, given)
    assert torch.equal(toy.embed.weight, given["old.embed.weight"])
    assert torch.equal(toy.q.weight, given["qkv.weight"][:WIDE])
    assert torch.equal(toy.k.weight, given["qkv.weight"][WIDE:])
    assert torch.equal(toy.gate_up[2, :NARROW], given["experts.2.gate"])
    assert torch.equal(toy.gate_up[2, NARROW:], given["experts.2.up"])
    assert torch.equal(toy.bias, given["bias"])


def test_tied_weights_stay_one_tensor(tmp_path: Path) -> None:
    toy = load(tmp_path, tensors())
    assert toy.head.weight is toy.embed.weight


@pytest.mark.parametrize("also", [True, False])
def test_a_tied_weight_may_lie_under_its_other_key_or_both(tmp_path: Path, also: bool) -> None:
    given = tensors()
    given["head.weight"] = given["old.embed.weight"].clone()
    if not also:
        del given["old.embed.weight"]
    toy = load(tmp_path, given)
    assert torch.equal(toy.embed.weight, given["head.weight"])


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    given = tensors()
    del given["old.embed.weight"]
    with pytest.raises(ModelError, match=r"missing: embed\.weight\."):
        load(tmp_path, given)


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    given = {key: tensor for key, tensor in tensors().items() if "experts.1" not in key}
    with pytest.raises(ModelError, match=r"missing: gate_up \(1 of its experts, the first 1\)"):
        load(tmp_path, given)


def test_half_an_expert_is_not_enough(tmp_path: Path) -> None:
    given = tensors()
    del given["experts.1.up"]
    with pytest.raises(ModelError, match=r"gate_up \(8 of its 48 values\)"):
        load(tmp_path, given)


def test_an_unexpected_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"unexpected: lora\.weight\."):
        load(tmp_path, {**tensors(), "lora.weight": torch.zeros(1)})


def test_an_expert_too_many_is_unexpected(tmp_path: Path) -> None:
    extra = {"experts.3.up": torch.zeros(NARROW, WIDE)}
    with pytest.raises(ModelError, match=r"unexpected: experts\.3\.up\."):
        load(tmp_path, {**tensors(), **extra})


@pytest.mark.parametrize(
    ("key", "shape", "expected"),
    [
        ("old.embed.weight", (6, WIDE), [5, WIDE]),
        ("qkv.weight", (WIDE, WIDE), [WIDE + NARROW, WIDE]),
        ("experts.0.up", (NARROW, 1), [NARROW, WIDE]),
        ("bias", (), [EXPERTS]),
    ],
)
def test_a_misshaped_tensor_is_named_with_both_shapes(
    tmp_path: Path, key: str, shape: tuple[int, ...], expected: list[int]
) -> None:
    given = {**tensors(), key: torch.zeros(shape)}
    with pytest.raises(ModelError) as caught:
        load(tmp_path, given)
    assert f"{key} (expected {expected}, got {list(shape)})" in str(caught.value)
    assert "missing" not in str(caught.value)


def test_two_tensors_for_one_place_are_refused(tmp_path: Path) -> None:
    given = tensors()
    given["embed.weight"] = given["old.embed.weight"].clone()
    with pytest.raises(ModelError, match="given twice"):
        load(tmp_path, given)


def test_all_misfits_are_said_at_once_the_first_few_by_name(tmp_path: Path) -> None:
    extra = {f"extra.{i}": torch.zeros(1) for i in range(NAMED + 2)}
    given = {**tensors(), **extra}
    del given["bias"]
    with pytest.raises(ModelError) as caught:
        load(tmp_path, given)
    assert "missing: bias" in str(caught.value)
    assert "extra.3 and 2 more" in str(caught.value)


def test_values_are_converted_to_the_dtype_of_their_place(tmp_path: Path) -> None:
    given = {key: tensor.bfloat16() for key, tensor in tensors().items()}
    toy = load(tmp_path, given)
    assert toy.q.weight.dtype == torch.float32
    assert torch.equal(toy.q.weight, given["qkv.weight"][:WIDE].float())
