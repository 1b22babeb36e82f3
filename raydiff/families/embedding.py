"""Embedding diffusion: DiffuSeq, Diffusion-LM and flow matching on embeddings; no torch.

Our own checkpoints say everything in `config.json`. DiffuSeq's published checkpoints come with a
`training_args.json`, which serves as `config.json`; its network is `bert-base-uncased` unless the
file also holds BERT's own keys.
"""

from __future__ import annotations

from typing import Any, cast, get_args

from raydiff.decoding import Decoding
from raydiff.families.family import Config, Family, KeyRule, Source
from raydiff.spec import ModelSpec, NoiseSchedule, Prediction

MODEL_TYPE = "raydiff-embedding"
_DIFFUSEQ_KEYS = frozenset({"hidden_t_dim", "hidden_dim", "seq_len", "predict_xstart"})

_BERT_BASE: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "layer_norm_eps": 1e-12,
}
_BERT_IDS = {"[PAD]": 0, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}


def _recognises(config: Config) -> bool:
    return config.get("model_type") == MODEL_TYPE or config.keys() >= _DIFFUSEQ_KEYS


def _network(config: Config) -> dict[str, Any]:
    """The shape of the network; what only one layout has is filled in."""
    if config.get("model_type") == MODEL_TYPE:
        return {"encoder_layers": 0, "cross_attention": False, "prompt_positions": False, **config}
    # 0 is what the published default file has for a vocabulary still to be read
    given = {key: config[key] for key in _BERT_BASE if config.get(key)}
    return {
        **_BERT_BASE,
        **given,
        "embedding_size": config["hidden_dim"],
        "time_size": config["hidden_t_dim"],
        "encoder_layers": 0,
        "cross_attention": False,
        "prompt_positions": False,
    }


def _spec(source: Source) -> ModelSpec:
    if source.config.get("model_type") == MODEL_TYPE:
        return _own_spec(source)
    return _diffuseq_spec(source)


def _own_spec(source: Source) -> ModelSpec:
    config, section = source.config, source.config["raydiff"]
    return ModelSpec(
        name=source.name,
        family="embedding",
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        kv=(),
        attention="full",
        noise="gaussian",
        prediction=_prediction(config["prediction"]),
        noise_schedule=_schedule(config["noise_schedule"]),
        latent_size=config["embedding_size"],
        first_time=config.get("first_time", 1.0),
        pad_id=section["pad_id"],
        mask_id=section["mask_id"],
        end_ids=tuple(section["end_ids"]),
        forbidden_ids=tuple(section.get("forbidden_ids", ())),
        prompt_prefix_ids=tuple(section.get("prompt_prefix_ids", ())),
        prompt_suffix_ids=tuple(section.get("prompt_suffix_ids", ())),
        max_prompt_tokens=section["max_prompt_tokens"],
        block_length=section["block_length"],
        max_new_tokens=section["block_length"],
        defaults=Decoding.from_mapping(section.get("defaults", {})),
    )


def _diffuseq_spec(source: Source) -> ModelSpec:
    config, network = source.config, _network(source.config)
    pad, begin, end, mask = (source.special_ids.get(name, i) for name, i in _BERT_IDS.items())
    half: int = config["seq_len"] // 2
    return ModelSpec(
        name=source.name,
        family="embedding",
        vocab_size=network["vocab_size"],
        hidden_size=network["hidden_size"],
        kv=(),
        attention="full",
        noise="gaussian",
        prediction="x0" if config["predict_xstart"] else "epsilon",
        noise_schedule=_schedule(config.get("noise_schedule", "sqrt")),
        latent_size=config["hidden_dim"],
        pad_id=pad,
        mask_id=mask,
        end_ids=(end,),
        forbidden_ids=(begin,),
        prompt_prefix_ids=(begin,),
        # a separator follows the source, and every published target begins with [CLS]
        prompt_suffix_ids=(end, end, begin),
        context_length=config["seq_len"],
        max_prompt_tokens=config["seq_len"] - half,
        block_length=half,
        max_new_tokens=half,
        defaults=Decoding(policy="solver", solver="ddpm", steps=200, rounding="euclidean"),
    )


def _prediction(name: str) -> Prediction:
    return cast(Prediction, _one_of(name, get_args(Prediction), "prediction"))


def _schedule(name: str) -> NoiseSchedule:
    return cast(NoiseSchedule, _one_of(name, get_args(NoiseSchedule), "noise_schedule"))


def _one_of(name: str, known: tuple[str, ...], setting: str) -> str:
    if name not in known:
        raise ValueError(f"{setting}: expected one of {', '.join(known)}, got {name!r}")
    return name


FAMILY = Family(
    name="embedding",
    title="noise on embeddings: DiffuSeq, Diffusion-LM, flow matching",
    recognises=_recognises,
    spec=_spec,
    network="embedding",
    stock_config=_network,
    rules=(
        KeyRule(pattern=r"lm_head\.weight", targets=()),  # tied to the word embeddings
        KeyRule(pattern=r"position_ids", targets=()),
    ),
    tested="outputs against a plain implementation, solvers on known scores, three small trained "
    "checkpoints",
    unchecked="DiffuSeq's published weights: its [CLS] before the target is given, not denoised, "
    "and padding is masked, where the published code attends to it; Diffusion-LM's need a config",
)
