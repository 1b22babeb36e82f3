"""Model specs: reading them, and resolving decoding parameters against them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from raydiff.decoding import CHOICES, POLICIES, POLICY_NOISE, POLICY_SETTINGS, Policy
from raydiff.errors import DecodingError, ModelError
from raydiff.families import load_spec, model_path
from raydiff.models.loading import random_denoiser
from raydiff.request import Decoding
from raydiff.spec import SETTING_DEFAULTS, Attention, KVGroup, ModelSpec, Noise

_POLICY_OWN = frozenset().union(*POLICY_SETTINGS.values())


@pytest.fixture(scope="module")
def spec() -> ModelSpec:
    return random_denoiser().spec  # blocks of 16, at most 64 tokens


def test_absent_values_come_from_the_model(spec: ModelSpec) -> None:
    resolved = spec.resolve(Decoding())
    assert (resolved.policy, resolved.steps, resolved.block_length) == ("quota", 16, 16)
    assert (resolved.temperature, resolved.cache, resolved.threshold) == (0.0, "auto", None)


def test_a_threshold_alone_implies_its_policy(spec: ModelSpec) -> None:
    resolved = spec.resolve(Decoding(threshold=0.5))
    assert (resolved.policy, resolved.steps) == ("threshold", None)


def test_resolving_twice_changes_nothing(spec: ModelSpec) -> None:
    for decoding in (Decoding(), Decoding(threshold=0.5), Decoding(block_length=8)):
        once = spec.resolve(decoding)
        assert spec.resolve(once) == once


def test_default_steps_fit_a_shorter_block(spec: ModelSpec) -> None:
    assert spec.resolve(Decoding(block_length=4)).steps == 4


@pytest.mark.parametrize(
    ("decoding", "param"),
    [
        (Decoding(max_tokens=65), "max_tokens"),
        (Decoding(block_length=17), "block_length"),
        (Decoding(steps=17), "steps"),
        (Decoding(block_length=4, steps=5), "steps"),
    ],
)
def test_what_the_model_cannot_do_is_refused_by_name(
    spec: ModelSpec, decoding: Decoding, param: str
) -> None:
    with pytest.raises(DecodingError, match=param) as caught:
        spec.resolve(decoding)
    assert caught.value.param == param


def test_an_unknown_model_names_what_there_is() -> None:
    with pytest.raises(ModelError, match="summarizer"):
        model_path("no-such-model")


@pytest.mark.parametrize("text", ["not json", "[]", json.dumps({"model_type": "gpt2"})])
def test_an_unusable_config_is_a_model_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"config\.json"):
        load_spec(tmp_path)


def test_a_config_without_its_facts_says_which_is_missing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "model_type": "bert",
                "vocab_size": 8,
                "num_hidden_layers": 1,
                "num_attention_heads": 1,
                "hidden_size": 8,
                "pad_token_id": 0,
                "raydiff": {},
            }
        )
    )
    with pytest.raises(ModelError, match="mask_id"):
        load_spec(tmp_path)


ATTENTIONS: tuple[Attention, ...] = ("full", "encoder-block", "block-causal", "causal-encoder")
NOISES: tuple[Noise, ...] = ("absorbing", "uniform", "gaussian")


def make_spec(
    noise: Noise = "absorbing",
    attention: Attention = "encoder-block",
    defaults: Decoding | None = None,
) -> ModelSpec:
    """A model of 32 positions a block, at most 128 tokens."""
    return ModelSpec(
        name="toy",
        family="toy",
        vocab_size=10,
        hidden_size=8,
        kv=(KVGroup(layers=1, heads=1, head_dim=8),),
        attention=attention,
        noise=noise,
        pad_id=0,
        mask_id=1,
        end_ids=(2,),
        max_prompt_tokens=64,
        block_length=32,
        max_new_tokens=128,
        defaults=defaults or Decoding(),
    )


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_undoes_the_noises_it_is_made_for_and_no_other(
    policy: Policy, noise: Noise
) -> None:
    spec = make_spec(noise, "block-causal")
    if noise in POLICY_NOISE[policy]:
        resolved = spec.resolve(Decoding(policy=policy))
        assert resolved.policy == policy
        given = {name for name in _POLICY_OWN if getattr(resolved, name) is not None}
        assert given <= POLICY_SETTINGS[policy]
    else:
        with pytest.raises(DecodingError, match=f"one of {', '.join(spec.policies())}") as caught:
            spec.resolve(Decoding(policy=policy))
        assert caught.value.param == "policy"


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_self_speculation_needs_block_causal_attention(attention: Attention) -> None:
    assert ("speculative" in make_spec(attention=attention).policies()) == (
        attention == "block-causal"
    )


@pytest.mark.parametrize(
    ("noise", "policy"),
    [("absorbing", "quota"), ("uniform", "entropy_bound"), ("gaussian", "solver")],
)
def test_each_noise_has_a_usual_policy(noise: Noise, policy: str) -> None:
    assert make_spec(noise).resolve(Decoding()).policy == policy


@pytest.mark.parametrize(
    ("decoding", "policy"),
    [
        (Decoding(score="entropy"), "quota"),
        (Decoding(schedule="timestep"), "quota"),
        (Decoding(steps=4), "quota"),
        (Decoding(threshold=0.5), "threshold"),
        (Decoding(threshold=0.5, low_threshold=0.2), "hierarchical"),
        (Decoding(threshold=0.5, edit_threshold=0.8), "edit"),
        (Decoding(factor=2.0), "factor"),
        (Decoding(entropy_bound=0.2), "entropy_bound"),
        (Decoding(remask="loop", eta=0.1), "remask"),
        (Decoding(eta=0.1), "remask"),
    ],
)
def test_a_setting_implies_the_first_policy_that_reads_it(decoding: Decoding, policy: str) -> None:
    assert make_spec().resolve(decoding).policy == policy


def test_a_setting_that_the_models_own_policy_reads_does_not_change_it() -> None:
    spec = make_spec(defaults=Decoding(policy="edit", threshold=0.7, edit_threshold=0.8))
    resolved = spec.resolve(Decoding(threshold=0.95))
    assert (resolved.policy, resolved.threshold, resolved.edit_threshold) == ("edit", 0.95, 0.8)


def test_the_models_defaults_are_those_of_its_own_policy_only() -> None:
    spec = make_spec(defaults=Decoding(policy="threshold", threshold=0.7, steps=9))
    assert spec.resolve(Decoding()).threshold == 0.7
    assert spec.resolve(Decoding()).steps == 9
    other = spec.resolve(Decoding(policy="hierarchical"))
    assert (other.threshold, other.steps) == (SETTING_DEFAULTS["threshold"], None)


@pytest.mark.parametrize(
    ("decoding", "param", "says"),
    [
        (Decoding(threshold=0.5, remask="cap"), "remask", "Leave it out"),
        (Decoding(solver="ddim"), "solver", "under policy 'quota'"),
        (Decoding(steps=4, stop_entropy=0.1), "stop_entropy", "one of entropy_bound, ancestral"),
        (Decoding(cache="prefix"), "cache", "auto or none"),
        (Decoding(cache="dual", window=4), "cache", "fully bidirectional"),
        (Decoding(window=4), "window", "dual"),
        (Decoding(refresh_steps=4), "refresh_steps", "prefix or dual"),
        (Decoding(guidance=1.0, cache="auto"), "cache", "none with guidance"),
        (Decoding(min_tokens=33, max_tokens=None), "min_tokens", "at most max_tokens"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_with_a_remedy(
    decoding: Decoding, param: str, says: str
) -> None:
    spec = make_spec(defaults=Decoding(max_tokens=32))
    with pytest.raises(DecodingError, match=says) as caught:
        spec.resolve(decoding)
    assert caught.value.param == param
    assert "solver" not in str(caught.value).partition("set policy to")[2]


@pytest.mark.parametrize("length", [1, 3, 8, 24, 32])
def test_blocks_of_a_block_causal_model_divide_its_own(length: int) -> None:
    spec = make_spec(attention="block-causal")
    if 32 % length == 0:
        assert spec.resolve(Decoding(block_length=length)).block_length == length
    else:
        with pytest.raises(DecodingError, match="divisor of the model's block length"):
            spec.resolve(Decoding(block_length=length))


def test_a_fully_bidirectional_model_denoises_a_short_text_in_one_short_block() -> None:
    resolved = make_spec(attention="full").resolve(Decoding(max_tokens=8))
    assert (resolved.block_length, resolved.steps) == (8, 8)


def test_guidance_goes_without_a_cache_and_not_with_noise_on_embeddings() -> None:
    assert make_spec(attention="full").resolve(Decoding(guidance=1.5)).cache == "none"
    with pytest.raises(DecodingError, match="guidance"):
        make_spec("gaussian", "full").resolve(Decoding(guidance=1.5))


def _values(name: str) -> st.SearchStrategy[Any]:
    choice = CHOICES[name]
    if choice.of:
        return st.sampled_from(choice.of)
    if choice.kind is bool:
        return st.booleans()
    if choice.kind is int:
        return st.integers(max(1, int(choice.low)), int(min(choice.high, 40)))
    return st.floats(choice.low, min(choice.high, 4.0), exclude_min=choice.open_low)


@st.composite
def decodings(draw: st.DrawFn) -> Decoding:
    names = draw(st.sets(st.sampled_from(sorted(CHOICES)), max_size=4))
    try:
        return Decoding(**{name: draw(_values(name)) for name in names})
    except DecodingError:
        assume(False)
        raise


@given(
    decoding=decodings(),
    defaults=decodings(),
    noise=st.sampled_from(NOISES),
    attention=st.sampled_from(ATTENTIONS),
)
def test_whatever_is_resolved_leaves_nothing_open_and_stays_as_it_is(
    decoding: Decoding, defaults: Decoding, noise: Noise, attention: Attention
) -> None:
    spec = make_spec(noise, attention, defaults)
    assume(spec.defaults.policy is None or spec.defaults.policy in spec.policies())
    refused: DecodingError | None = None
    try:
        resolved = spec.resolve(decoding)
    except DecodingError as error:
        refused = error
    if refused is not None:
        assert refused.param in CHOICES
        assert str(refused).startswith(f"{refused.param}: expected")
        return
    assert spec.resolve(resolved) == resolved
    for name, value in decoding.given().items():
        assert getattr(resolved, name) == value
    filled = {"policy", "max_tokens", "temperature", "block_length", "cache"}
    filled |= POLICY_SETTINGS[resolved.policy or ""] - {"steps", "stop_entropy"}
    assert filled <= resolved.given().keys()


@pytest.mark.parametrize(
    "facts",
    [
        {"mask_id": 10},
        {"pad_id": -1},
        {"end_ids": ()},
        {"end_ids": (2, 11)},
        {"mask_id": "one"},
        {"prompt_prefix_ids": (10,)},
        {"block_length": 0},
        {"max_new_tokens": 0},
    ],
)
def test_a_model_without_usable_tokens_or_lengths_is_none(facts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected (at least|ids in)"):
        replace(make_spec(), **facts)
