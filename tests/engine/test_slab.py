"""Dense row caches."""

from __future__ import annotations

import torch

from raydiff.engine.slab import FIRST_ROWS, Slab
from raydiff.models.denoiser import Cache, Denoiser

CPU = torch.device("cpu")


def filled(denoiser: Denoiser, value: float, rows: int = 1, length: int = 4) -> Cache:
    return tuple(
        torch.full((group.layers, 2, rows, group.heads, length, group.head_dim), value)
        for group in denoiser.spec.kv
    )


def test_rows_stay_dense_when_one_leaves(denoiser: Denoiser) -> None:
    slab = Slab(denoiser.spec, 8, torch.float32, CPU)
    for i, name in enumerate("abc"):
        slab.reserve([name])
        slab.write(slab.rows([name]), filled(denoiser, float(i)), [0])
    slab.release("a")
    assert slab.rows(["c", "b"]) == [0, 1]
    values = slab.read([0, 1], 4)[0][0, 0, :, 0, 0, 0].tolist()
    assert values == [2.0, 1.0]


def test_reading_all_rows_copies_nothing_and_a_part_does(denoiser: Denoiser) -> None:
    slab = Slab(denoiser.spec, 8, torch.float32, CPU)
    slab.reserve(["a", "b"])
    (whole,) = slab.read([0, 1], 8)
    assert (
        whole.untyped_storage().data_ptr() == slab.read([0, 1], 4)[0].untyped_storage().data_ptr()
    )
    assert slab.read([1], 8)[0].untyped_storage().data_ptr() != whole.untyped_storage().data_ptr()


def test_growing_keeps_what_was_written(denoiser: Denoiser) -> None:
    slab = Slab(denoiser.spec, 8, torch.float32, CPU)
    slab.reserve(["first"])
    slab.write([0], filled(denoiser, 7.0), [2])
    slab.reserve([f"r{i}" for i in range(FIRST_ROWS * 3)])
    assert len(slab) == FIRST_ROWS * 3 + 1
    assert slab.read([0], 8)[0][0, 0, 0, 0, :, 0].tolist() == [0, 0, 7, 7, 7, 7, 0, 0]


def test_padding_that_does_not_fit_is_dropped(denoiser: Denoiser) -> None:
    slab = Slab(denoiser.spec, 8, torch.float32, CPU)
    slab.reserve(["a"])
    slab.write([0], filled(denoiser, 1.0, length=6), [5])
    assert slab.read([0], 8)[0][0, 0, 0, 0, :, 0].tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
