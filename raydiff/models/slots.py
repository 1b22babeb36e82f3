"""Slots: the places of a module's weights, allocated before any weight is read, filled piece by
piece.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from torch import Tensor, nn

from raydiff.models.keys import Place

Shape = tuple[int, ...]
Allocate = Callable[[str, Tensor], Tensor]
"""(key, tensor on the meta device) -> the tensor that takes its place."""


class Slot:
    """One tensor of a module and which pieces of it are written.

    Pieces are experts along the first dimension and, within an expert or a whole tensor, equal
    parts of its rows.
    """

    def __init__(self, key: str, tensor: Tensor) -> None:
        self.key = key
        self.tensor = tensor
        self.shape: Shape = tuple(tensor.shape)
        self._written: dict[tuple[int | None, int], str] = {}
        self._left = prod(self.shape)

    def shape_at(self, place: Place) -> Shape | None:
        """The shape of the piece at a place; `None` where there is no such place."""
        shape = self.shape
        if place.expert is not None:
            if not shape or place.expert >= shape[0]:
                return None
            shape = shape[1:]
        index, parts = place.part
        if parts == 1:
            return shape
        if not shape or shape[0] % parts or index >= parts:
            return None
        return (shape[0] // parts, *shape[1:])

    def write(self, place: Place, piece: Tensor) -> bool:
        """Copy a piece of the right shape, converting its dtype; False if the same key wrote it
        before. Of the keys of a tied tensor the first one read counts.
        """
        where = (place.expert, place.part[0])
        if where in self._written:
            return self._written[where] != place.target
        target = self.tensor if place.expert is None else self.tensor[place.expert]
        if place.part[1] > 1:
            height = piece.shape[0]
            target = target.narrow(0, place.part[0] * height, height)
        target.copy_(piece)
        self._written[where] = place.target
        self._left -= piece.numel()
        return True

    @property
    def is_full(self) -> bool:
        """Whether every value has been written."""
        return self._left == 0

    def lack(self) -> str:
        """What is missing, in words."""
        if not self._written:
            return self.key
        experts = {expert for expert, _ in self._written if expert is not None}
        absent = sorted(set(range(self.shape[0])) - experts) if experts else []
        if absent:
            return f"{self.key} ({len(absent)} of its experts, the first {absent[0]})"
        return f"{self.key} ({self._left} of its {prod(self.shape)} values)"


class Slots:
    """The slots of a module by key; tied weights share one."""

    def __init__(self, by_key: dict[str, Slot], recomputed: frozenset[str]) -> None:
        self._by_key = by_key
        self.recomputed = recomputed
        """Keys of buffers that the module works out itself."""

    def get(self, key: str) -> Slot | None:
        """The slot of a key, or of the key that it is tied to."""
        return self._by_key.get(key)

    def all(self) -> list[Slot]:
        """Each slot once."""
        return list({id(slot): slot for slot in self._by_key.values()}.values())


def open_slots(module: nn.Module, allocate: Allocate) -> Slots:
    """Allocate every parameter and persistent buffer of a module that lies on the meta device.

    Tied parameters, one object under several keys, stay tied.
    """
    slots: dict[int, Slot] = {}
    by_key: dict[str, Slot] = {}
    for key, parameter in list(module.named_parameters(remove_duplicate=False)):
        if id(parameter) not in slots:
            tensor = nn.Parameter(allocate(key, parameter), requires_grad=False)
            slots[id(parameter)] = Slot(key, tensor)
        by_key[key] = slots[id(parameter)]
        setattr(_owner(module, key), _leaf(key), by_key[key].tensor)
    recomputed: set[str] = set()
    for key, buffer in list(module.named_buffers(remove_duplicate=False)):
        owner = _owner(module, key)
        if _leaf(key) in owner._non_persistent_buffers_set:
            recomputed.add(key)
            continue
        by_key[key] = Slot(key, allocate(key, buffer))
        setattr(owner, _leaf(key), by_key[key].tensor)
    return Slots(by_key, frozenset(recomputed))


def _owner(module: nn.Module, key: str) -> nn.Module:
    return module.get_submodule(key.rpartition(".")[0])


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


__all__ = ["Allocate", "Shape", "Slot", "Slots", "open_slots"]
