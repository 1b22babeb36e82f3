"""Loading a checkpoint directory: what is refused, and how it is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from raydiff.errors import ModelError
from raydiff.families import family_of, load_source
from raydiff.families.presets import PREFIX, PRESETS
from raydiff.models.loading import (
    build_module,
    load_denoiser,
    random_denoiser,
    resolve_device,
    resolve_dtype,
)
from raydiff.models.meta import recompute_buffers
from raydiff.models.networks import NETWORKS
from raydiff.models.random import fill_randomly
from raydiff.models.slots import open_slots
from raydiff.train.checkpoint import RAYDIFF_SECTION


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A tiny model's directory, as the trainer writes one."""
    denoiser = random_denoiser(target_position=448, block_length=16)
    denoiser.model.save_pretrained(str(tmp_path))
    config = json.loads((tmp_path / "config.json").read_text())
    config["raydiff"] = RAYDIFF_SECTION
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_directory_loads_with_the_dtype_asked_for(checkpoint: Path) -> None:
    assert load_denoiser(checkpoint, "cpu", "fp32").dtype == torch.float32
    assert load_denoiser(str(checkpoint), "cpu", "bf16").dtype == torch.bfloat16


def test_a_loaded_model_computes_what_was_saved(checkpoint: Path) -> None:
    tokens_BL, positions_BL = torch.tensor([[1, 5, 6, 2]]), torch.arange(4)[None]
    saved = random_denoiser(target_position=448, block_length=16)
    loaded = load_denoiser(checkpoint, "cpu", "fp32")
    expected_BLD, _ = saved.forward(tokens_BL, positions_BL, None, None, False)
    hidden_BLD, _ = loaded.forward(tokens_BL, positions_BL, None, None, False)
    assert torch.allclose(hidden_BLD, expected_BLD, atol=1e-6)


def test_missing_weights_are_named(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load_denoiser(checkpoint, "cpu", "fp32")


def test_pickled_weights_are_refused(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").rename(checkpoint / "pytorch_model.bin")
    with pytest.raises(ModelError, match="refused"):
        load_denoiser(checkpoint, "cpu", "fp32")


def test_truncated_weights_are_a_model_error(checkpoint: Path) -> None:
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_denoiser(checkpoint, "cpu", "fp32")


def test_an_unknown_name_lists_the_bundled_ones() -> None:
    with pytest.raises(ModelError, match="summarizer"):
        load_denoiser("no-such-model")


@pytest.mark.parametrize("device", ["gpu", "cuda:99", ""])
def test_a_device_this_machine_lacks_is_refused(device: str) -> None:
    with pytest.raises(ModelError, match="device"):
        resolve_device(device)


def test_a_dtype_is_automatic_or_known() -> None:
    cpu = torch.device("cpu")
    assert resolve_dtype("auto", cpu) in (torch.bfloat16, torch.float32)
    assert resolve_dtype("fp32", cpu) == torch.float32
    with pytest.raises(ModelError, match="bf16"):
        resolve_dtype("float64", cpu)


def test_random_models_repeat_for_their_seed() -> None:
    first, again, other = (random_denoiser(seed=seed) for seed in (1, 1, 2))
    weights = [d.model.bert.embeddings.word_embeddings.weight for d in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_shards_give_what_one_file_gives(checkpoint: Path) -> None:
    whole = load_denoiser(checkpoint, "cpu", "fp32").model.state_dict()
    tensors = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    write_shards(checkpoint, [dict(list(tensors.items())[i::3]) for i in range(3)])
    parts = load_denoiser(checkpoint, "cpu", "fp32").model.state_dict()
    assert whole.keys() == parts.keys()
    assert all(torch.equal(tensor, parts[key]) for key, tensor in whole.items())


def test_a_tensor_that_the_config_does_not_describe_is_named(checkpoint: Path) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    tensors["bert.adapter.weight"] = torch.zeros(2)
    del tensors["cls.predictions.bias"]
    save_file(tensors, checkpoint / "model.safetensors")
    with pytest.raises(ModelError, match=r"cls\.predictions.*bert\.adapter\.weight"):
        load_denoiser(checkpoint, "cpu", "fp32")


def test_code_of_a_checkpoint_never_runs(checkpoint: Path) -> None:
    witness = checkpoint / "witness"
    (checkpoint / "modeling.py").write_text(f"open({str(witness)!r}, 'w')\n")
    classes = dict.fromkeys(("AutoConfig", "AutoModelForMaskedLM"), "modeling.Model")
    change_config(checkpoint, auto_map=classes)
    load_denoiser(checkpoint, "cpu", "fp32")
    assert not witness.exists()


def test_weights_quantised_by_others_are_refused(checkpoint: Path) -> None:
    change_config(checkpoint, quantization_config={"quant_method": "fp8"})
    with pytest.raises(ModelError, match="quantization_config"):
        load_denoiser(checkpoint, "cpu", "fp32")


@pytest.mark.parametrize("change", [{"hidden_act": "no-such"}, {"num_attention_heads": 5}])
def test_a_config_that_makes_no_model_is_a_model_error(
    checkpoint: Path, change: dict[str, object]
) -> None:
    change_config(checkpoint, **change)
    with pytest.raises(ModelError, match=r"config\.json"):
        load_denoiser(checkpoint, "cpu", "fp32")


TINY = [name for name in PRESETS if name.startswith("tiny-")]


def made_plainly(preset: str) -> nn.Module:
    """The module as its own constructor makes it, with memory from the start."""
    source = load_source(PREFIX + preset)
    family = family_of(source.config, preset)
    return NETWORKS[family.network].build(family.stock_config(source.config))


def filled(preset: str) -> nn.Module:
    """The module made on meta and filled with random values."""
    source, cpu = load_source(PREFIX + preset), torch.device("cpu")
    module = build_module(family_of(source.config, preset), source)
    fill_randomly(open_slots(module, lambda key, tensor: torch.empty(tensor.shape)), cpu)
    recompute_buffers(module, cpu)
    return module


@pytest.mark.parametrize("preset", TINY)
def test_buffers_that_no_checkpoint_holds_are_as_the_constructor_makes_them(preset: str) -> None:
    plain, ours = made_plainly(preset), filled(preset)
    stored = ours.state_dict().keys()
    made = {key: value for key, value in ours.named_buffers() if key not in stored}
    expected = {key: value for key, value in plain.named_buffers() if key not in stored}
    assert made.keys() == expected.keys()
    assert all(torch.equal(value, expected[key]) for key, value in made.items())
    assert all(value.dtype == expected[key].dtype for key, value in made.items())


@pytest.mark.parametrize("preset", TINY)
def test_recomputing_buffers_changes_no_weight(preset: str) -> None:
    once, again = filled(preset), filled(preset)
    recompute_buffers(again, torch.device("cpu"))
    second = again.state_dict()
    assert all(torch.equal(value, second[key]) for key, value in once.state_dict().items())


def test_routers_and_their_corrections_stay_fp32() -> None:
    module = load_denoiser("random:tiny-llada2", "cpu", "bf16").module
    dtypes = {key: tensor.dtype for key, tensor in module.state_dict().items()}
    precise = {key for key, dtype in dtypes.items() if dtype == torch.float32}
    gate = "model.layers.1.mlp.gate"
    assert precise == {f"{gate}.weight", f"{gate}.e_score_correction_bias"}


def change_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def write_shards(folder: Path, shards: list[dict[str, torch.Tensor]]) -> None:
    """Shards and their index, as transformers writes them."""
    weight_map = {}
    for i, tensors in enumerate(shards):
        name = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        save_file(tensors, folder / name)
        weight_map.update(dict.fromkeys(tensors, name))
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))


PEAK = """
import sys
import torch
from raydiff.models.loading import load_denoiser

def peak():
    # getrusage would begin with the peak of the process that started this one
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])

torch.set_num_threads(1)
load_denoiser("random:tiny-dream", "cpu", sys.argv[2])
before = peak()
denoiser = load_denoiser(sys.argv[1], "cpu", sys.argv[2])
print(peak() - before)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int]:
    """A checkpoint of some 200 MB in bf16: its directory, its bytes, its largest shard's."""
    folder = tmp_path_factory.mktemp("large")
    config = {
        **PRESETS["tiny-dream"].config,
        "hidden_size": 1024,
        "head_dim": 64,
        "intermediate_size": 4096,
        "num_hidden_layers": 6,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "vocab_size": 2048,
    }
    (folder / "config.json").write_text(json.dumps(config))
    source = load_source(folder)
    shapes = build_module(family_of(source.config, "large"), source).state_dict()
    tensors = {key: torch.zeros(t.shape, dtype=torch.bfloat16) for key, t in shapes.items()}
    layers = [f"model.layers.{i}." for i in range(6)]
    shards = [{k: t for k, t in tensors.items() if k.startswith(layer)} for layer in layers]
    shards.append({k: t for k, t in tensors.items() if not k.startswith("model.layers.")})
    write_shards(folder, shards)
    sizes = [sum(t.nbytes for t in shard.values()) for shard in shards]
    return folder, sum(sizes), max(sizes)


@pytest.mark.parametrize(("dtype", "share"), [("bf16", 1.0), ("fp32", 2.0), ("int8", 0.53)])
def test_loading_takes_at_most_one_shard_over_the_models_own_size(
    large: tuple[Path, int, int], dtype: str, share: float
) -> None:
    folder, stored, largest = large
    assert stored > 200 * 10**6
    command = [sys.executable, "-c", PEAK, str(folder), dtype]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    own = stored * share
    peak = int(done.stdout.splitlines()[-1])
    assert 0.9 * own < peak < own + largest + 32 * 2**20  # and what allocators hold back
