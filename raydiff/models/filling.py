"""Fills a module's slots from a checkpoint, and says all that does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from raydiff.errors import ModelError
from raydiff.models.keys import KeyMap, Place
from raydiff.models.reading import read_tensors, weight_files
from raydiff.models.slots import Slots

NAMED = 4
"""Tensors of one kind of misfit that an error names; the rest are counted."""


def fill_from(folder: Path, slots: Slots, keys: KeyMap, device: torch.device) -> None:
    """Stream a checkpoint's tensors into their slots, one shard open at a time.

    Raises:
        ModelError: a tensor is missing, unexpected, given twice or of the wrong shape; the message
            names them. Or the files cannot be read.
    """
    misfits = Misfits()
    for file in weight_files(folder):
        for key, tensor in read_tensors(file, device):
            if key not in slots.recomputed:
                _place(key, tensor, keys.places(key), slots, misfits)
    lacking = [slot for slot in slots.all() if not slot.is_full]
    misfits.missing = [slot.lack() for slot in lacking if slot.key not in misfits.met]
    misfits.refuse(folder)


class Misfits:
    """What of a checkpoint does not fit the module."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.repeated: list[str] = []
        self.misshaped: list[str] = []
        self.met: set[str] = set()
        """Keys of slots whose tensor was there, though of another shape."""

    def refuse(self, folder: Path) -> None:
        """Raise a ModelError that names them, if there are any."""
        found = [
            f"{what}: {_some(names)}"
            for what, names in (
                ("of another shape", self.misshaped),
                ("missing", self.missing),
                ("unexpected", self.unexpected),
                ("given twice", self.repeated),
            )
            if names
        ]
        if found:
            raise ModelError(
                f"{folder}: expected the tensors that its config.json describes, got some that are "
                + "; ".join(found)
                + "."
            )


def _place(
    key: str, tensor: Tensor, places: Sequence[Place], slots: Slots, misfits: Misfits
) -> None:
    for place in places:
        slot = slots.get(place.target)
        shape = slot.shape_at(place) if slot is not None else None
        if slot is None or shape is None:
            misfits.unexpected.append(key)
            return
        # of a tensor to be split, all rows are checked, not those of one part
        height = shape[:1] if place.rows_in_all is None else (place.rows_in_all,)
        expected = (*height, *shape[1:])
        if tuple(tensor.shape) != expected:
            misfits.met.update(other.key for p in places if (other := slots.get(p.target)))
            misfits.misshaped.append(f"{key} (expected {list(expected)}, got {list(tensor.shape)})")
            return
        piece = tensor if place.rows is None else tensor[slice(*place.rows)]
        assert tuple(piece.shape) == shape, f"the rule for {key} splits it into other sizes"
        if not slot.write(place, piece):
            misfits.repeated.append(key)


def _some(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
