"""Requests that are held to a set of texts, through the engine, in every family that can."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raydiff.engine import Engine, EngineLoop
from raydiff.engine.validation import MAX_CHOICES
from raydiff.errors import DecodingError, UsageError
from raydiff.models.denoiser import Denoiser
from raydiff.models.loading import load_denoiser
from raydiff.request import Completion, Decoding, Event, GenerationRequest
from raydiff.text import Tokenizer
from tests.engine.conftest import ListRecorder
from tests.engine.plain_choosing import choose_plainly

FAMILIES = (
    "tiny-llada",
    "tiny-dream",
    "tiny-sdar",
    "tiny-sdar-moe",
    "tiny-fast-dllm",
    "tiny-llada2",
    "tiny-a2d-mdlm",
    "tiny-a2d-bd3lm",
    "tiny-bert",
    "tiny-modernbert",
    "tiny-diffusion-gemma",
    "tiny-summarizer",
)
EXACT = ("tiny-sdar", "tiny-fast-dllm", "tiny-llada2", "tiny-diffusion-gemma", "tiny-summarizer")
LABELS = (
    ("yes", "no"),
    ("sport", "sports", "sporting goods", "politics"),
    ("topic: the economy at large", "topic: the economy of towns", "topic: weather"),
    ("", "spam"),
    ("ab", "a"),
    tuple(f"class {number}" for number in range(40)),
)
PROMPTS = ("hello world", "a", "the quick brown fox jumps over the lazy dog", "")


@cache
def loaded(name: str) -> Denoiser:
    torch.set_num_threads(1)
    return load_denoiser(f"random:{name}", device="cpu", dtype="fp32")


def engine_of(name: str, recorder: ListRecorder | None = None) -> Engine:
    return Engine(loaded(name), Tokenizer.load(f"random:{name}"), None, recorder)


def ask(
    engine: Engine,
    name: str,
    prompt: str,
    labels: Sequence[str],
    decoding: Decoding | None = None,
    **fields: bool,
) -> GenerationRequest:
    """A request for one of the labels."""
    choices = tuple(tuple(engine.tokenizer.encode(label)) for label in labels)
    usual = Decoding(max_tokens=max(map(len, choices)) + 1, temperature=0.0, seed=0)
    request = engine.request(prompt or "x", decoding or usual, request_id=name, **fields)
    return replace(request, choices=choices)


def mixed(engine: Engine) -> Iterator[GenerationRequest]:
    """Every set of labels with every prompt, some drawn, beside texts that are free."""
    for i, labels in enumerate(LABELS):
        for j, prompt in enumerate(PROMPTS):
            longest = max(len(engine.tokenizer.encode(label)) for label in labels)
            decoding = Decoding(
                max_tokens=longest + (i + j) % 3 + 1, temperature=float(j % 2), seed=i
            )
            yield ask(engine, f"{i}/{j}", prompt, labels, decoding)
    free = Decoding(max_tokens=6, temperature=0.0, ignore_eos=True, seed=1)
    yield engine.request("free", free, request_id="free")
    yield engine.request("freer", replace(free, temperature=0.7, seed=3), request_id="freer")


def run(
    engine: Engine, requests: Sequence[GenerationRequest], gap: int = 0
) -> dict[str, Completion]:
    """Submit with `gap` steps in between, and step to the end."""
    done: dict[str, Completion] = {}
    for request in requests:
        engine.submit(request)
        for _ in range(gap):
            done |= _finished(engine.step())
    while engine.has_work():
        done |= _finished(engine.step())
    return done


def _finished(events: Sequence[Event]) -> dict[str, Completion]:
    return {e.request_id: e.completion for e in events if e.completion is not None}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_text_is_one_of_the_choices_and_alone_as_in_any_batch(name: str) -> None:
    """Whatever stands beside it, chosen or free, and whenever it comes."""
    requests = list(mixed(engine_of(name)))
    alone: dict[str, Completion] = {}
    for request in requests:
        alone |= run(engine_of(name), [request])
    for request in requests:
        if request.choices:
            completion = alone[request.request_id]
            assert completion.token_ids in request.choices
            assert completion.text == engine_of(name).tokenizer.decode(completion.token_ids)
            assert completion.finish_reason == "stop"
            assert completion.choice_probability is not None
            assert 0 < completion.choice_probability <= 1
    assert alone["free"].choice_probability is None
    for order, gap in ((requests, 0), (requests[::-1], 2)):
        crowd = run(engine_of(name), order, gap)
        for request_id, completion in alone.items():
            other = crowd[request_id]
            assert other.token_ids == completion.token_ids, request_id
            assert other.usage == completion.usage, request_id
            assert other.choice_probability == pytest.approx(completion.choice_probability)


def test_the_labels_meet_frames_of_every_kind() -> None:
    """The test above is worth something only if labels cross blocks, and share whole ones."""
    engine = engine_of("tiny-sdar")
    shared = len(engine.tokenizer.encode("topic: the economy "))
    assert shared > 3 * engine.spec.block_length
    engines = [engine_of(name) for name in FAMILIES]
    texts = {run(e, [ask(e, "a", "hello", LABELS[2])])["a"].text for e in engines}
    assert len(texts) > 1


@pytest.mark.parametrize("name", EXACT)
def test_with_the_cache_as_without(name: str) -> None:
    def texts(cache: str) -> list[tuple[str, int]]:
        engine = engine_of(name)
        chosen = (r for r in mixed(engine) if r.choices)
        requests = [replace(r, decoding=replace(r.decoding, cache=cache)) for r in chosen]
        return sorted((c.text, c.usage.forwards) for c in run(engine, requests).values())

    assert texts("auto") == texts("none")


@pytest.mark.parametrize("name", ["tiny-llada", "tiny-dream", "tiny-bert"])
@pytest.mark.parametrize("steps", [1, 2, 16])
def test_it_decides_as_written_out(name: str, steps: int) -> None:
    """Tokens, probability and forwards of an independent implementation."""
    engine = engine_of(name)
    for labels in LABELS:
        choices = tuple(tuple(engine.tokenizer.encode(label)) for label in labels)
        longest = max(map(len, choices))
        decoding = Decoding(policy="threshold", steps=steps, max_tokens=longest + 1)
        decoding = replace(decoding, temperature=0.0)
        for prompt in PROMPTS:
            request = ask(engine, "a", prompt, labels, decoding)
            plain = choose_plainly(loaded(name), request.prompt_ids, choices, steps)
            completion = run(engine, [request])["a"]
            assert completion.token_ids == plain.choice
            assert completion.choice_probability == pytest.approx(plain.probability, rel=1e-4)
            assert completion.usage.forwards == plain.forwards <= steps


WORDS = st.lists(st.text("abc ", max_size=7), min_size=1, max_size=8, unique=True)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(FAMILIES),
    sets=st.lists(WORDS, min_size=1, max_size=3),
    temperature=st.sampled_from([0.0, 1.0, 5.0]),
    room=st.integers(0, 12),
    steps=st.sampled_from([None, 1, 2, 3]),
)
def test_any_set_of_labels_gives_one_of_them(
    name: str, sets: list[list[str]], temperature: float, room: int, steps: int | None
) -> None:
    engine = engine_of(name)
    requests = []
    for i, labels in enumerate(sets):
        longest = max(len(engine.tokenizer.encode(label)) for label in labels)
        decoding = Decoding(
            max_tokens=max(1, longest + room), temperature=temperature, seed=i, steps=steps
        )
        if steps is not None and engine.spec.noise == "absorbing":
            decoding = replace(decoding, policy="threshold")
        requests.append(ask(engine, str(i), "some prompt", labels, decoding))
    done = run(engine, requests)
    for i, labels in enumerate(sets):
        assert done[str(i)].text in labels
        assert done[str(i)].finish_reason == "stop"


def test_the_probabilities_of_all_choices_add_up_to_one() -> None:
    """Each is reached by its own chain of commits: at a high temperature every one comes out."""
    engine = engine_of("tiny-llada")
    found: dict[str, float] = {}
    for seed in range(80):
        decoding = Decoding(max_tokens=16, temperature=100.0, seed=seed)
        completion = run(engine, [ask(engine, "a", "hello", LABELS[1], decoding)])["a"]
        assert completion.choice_probability is not None
        chance = found.setdefault(completion.text, completion.choice_probability)
        assert chance == pytest.approx(completion.choice_probability)
    assert set(found) == set(LABELS[1])
    assert sum(found.values()) == pytest.approx(1.0)


def test_the_same_seed_draws_the_same_choice_and_seeds_differ() -> None:
    def texts(seed: int) -> list[str]:
        engine = engine_of("tiny-llada")
        decoding = Decoding(max_tokens=16, temperature=50.0, seed=seed)
        requests = [ask(engine, str(i), str(i), LABELS[5], decoding) for i in range(8)]
        return [c.text for c in run(engine, requests).values()]

    assert texts(1) == texts(1)
    assert texts(1) != texts(2)


def test_a_single_choice_needs_no_forward() -> None:
    recorder = ListRecorder()
    engine = engine_of("tiny-llada", recorder)
    completion = run(engine, [ask(engine, "a", "hello", ["only this"])])["a"]
    assert completion.text == "only this"
    assert completion.choice_probability == 1.0
    assert completion.usage.forwards == 0
    assert not recorder.steps
    assert len(recorder.requests) == 1


def test_a_single_choice_is_answered_through_the_loop_too() -> None:
    loop = EngineLoop(engine_of("tiny-llada"))
    events: list[Event] = []
    loop.start()
    loop.submit(ask(loop.engine, "a", "hello", ["only this"]), events.append)
    deadline = time.monotonic() + 30
    while not events and time.monotonic() < deadline:
        time.sleep(0.01)
    loop.stop()
    assert [e.completion.text for e in events if e.completion] == ["only this"]


def test_labels_of_one_token_take_one_forward() -> None:
    engine = engine_of("tiny-llada")
    completion = run(engine, [ask(engine, "a", "hello", "abcdefgh")])["a"]
    assert completion.usage.forwards == 1
    assert completion.usage.completion_tokens == 1


def test_no_forward_decides_what_all_choices_share() -> None:
    """However much longer they are made by what they have in common."""
    engine = engine_of("tiny-sdar")
    short = run(engine, [ask(engine, "a", "hello", ["x", "y"])])["a"]
    prefix = "once upon a time there was "
    long = run(engine, [ask(engine, "a", "hello", [prefix + "x", prefix + "y"])])["a"]
    assert (short.usage.forwards, long.usage.forwards) == (1, 1)
    assert long.text in (prefix + "x", prefix + "y")


@pytest.mark.parametrize("policy", ["quota", "threshold", "ancestral", "first_hitting", "credit"])
def test_the_policy_has_no_say_in_a_choice(policy: str) -> None:
    """Of absorbing noise, those that commit for good; rows beside keep theirs."""
    engine = engine_of("tiny-llada")
    usual = run(engine, [ask(engine, "a", "hello", LABELS[1])])["a"]
    decoding = Decoding(policy=policy, max_tokens=15, temperature=0.0)  # type: ignore[arg-type]
    other = run(engine, [ask(engine, "a", "hello", LABELS[1], decoding)])["a"]
    assert other.token_ids == usual.token_ids


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_approximate_caches_choose_too(cache: str) -> None:
    engine = engine_of("tiny-llada")
    decoding = Decoding(cache=cache, max_tokens=28, temperature=0.0)  # type: ignore[arg-type]
    for labels in LABELS:
        assert run(engine, [ask(engine, "a", "hello", labels, decoding)])["a"].text in labels


def test_guidance_moves_the_probability_and_counts_both_forwards() -> None:
    engine = engine_of("tiny-llada")
    plain = run(engine, [ask(engine, "a", "hello", "ab")])["a"]
    decoding = Decoding(guidance=3.0, max_tokens=2, temperature=0.0)
    guided = run(engine, [ask(engine, "a", "hello", "ab", decoding)])["a"]
    assert guided.usage.forwards == 2 * plain.usage.forwards
    assert guided.choice_probability != plain.choice_probability


def test_a_stream_spells_the_choice() -> None:
    for name in ("tiny-llada", "tiny-sdar", "tiny-summarizer"):
        engine = engine_of(name)
        engine.submit(ask(engine, "a", "hello", LABELS[2], stream=True))
        events = []
        while engine.has_work():
            events += engine.step()
        final = events[-1].completion
        assert final is not None
        assert "".join(event.text for event in events) == final.text in LABELS[2]


def test_a_models_own_stop_strings_do_not_cut_a_choice() -> None:
    engine = engine_of("tiny-llada")
    engine.spec = replace(engine.spec, defaults=replace(engine.spec.defaults, stop=("port",)))
    request = ask(engine, "a", "hello", ["sport", "airport"])
    assert request.decoding.stop == ("port",)
    assert run(engine, [request])["a"].text in ("sport", "airport")


REFUSED = (
    ({"choices": ((5,), (6,), (5,))}, "choices: expected choices that differ"),
    ({"choices": ((5,), (10_000,))}, r"choices: expected token ids in \[0, "),
    ({"choices": ((-1,),)}, r"choices: expected token ids in \[0, "),
    ({"choices": tuple((5, i) for i in range(MAX_CHOICES + 1))}, f"at most {MAX_CHOICES}"),
    ({"choices": ((5,),), "pinned": ((0, 5),)}, "no pinned positions beside choices"),
)


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_choices_that_cannot_work_are_refused(fields: dict[str, object], message: str) -> None:
    engine = engine_of("tiny-llada")
    request = replace(engine.request("hello", Decoding(max_tokens=8)), **fields)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=message) as caught:
        engine.submit(request)
    assert caught.value.param == "choices"


def test_tokens_that_a_model_never_writes_are_refused() -> None:
    engine = engine_of("tiny-llada")
    spec = engine.spec
    for token in (spec.mask_id, *spec.end_ids, *spec.forbidden_ids[:1]):
        request = replace(engine.request("hello", Decoding(max_tokens=8)), choices=((5, token),))
        with pytest.raises(UsageError, match="choices"):
            engine.submit(request)


CONTRADICTIONS = (
    (Decoding(max_tokens=2), "max_tokens"),
    (Decoding(max_tokens=8, min_tokens=3), "min_tokens"),
    (Decoding(max_tokens=8, ignore_eos=True), "ignore_eos"),
    (Decoding(max_tokens=8, top_p=0.9, temperature=1.0), "top_p"),
    (Decoding(max_tokens=8, top_k=3, temperature=1.0), "top_k"),
    (Decoding(max_tokens=8, stop=("a",)), "stop"),
    (Decoding(max_tokens=8, stable_steps=2), "stable_steps"),
    (Decoding(max_tokens=8, policy="edit"), "policy"),
    (Decoding(max_tokens=8, policy="remask"), "policy"),
)


@pytest.mark.parametrize(("decoding", "param"), CONTRADICTIONS)
def test_settings_that_contradict_a_choice_are_refused_by_name(
    decoding: Decoding, param: str
) -> None:
    engine = engine_of("tiny-llada")
    request = replace(engine.request("hello", decoding), choices=((5, 6, 7), (5, 8)))
    with pytest.raises(DecodingError, match=param) as caught:
        engine.submit(request)
    assert caught.value.param == param
    assert "expected" in str(caught.value)


def test_a_model_whose_own_policy_revises_still_chooses() -> None:
    engine = engine_of("tiny-llada2")
    engine.spec = replace(engine.spec, defaults=replace(engine.spec.defaults, policy="edit"))
    request = ask(engine, "a", "hello", LABELS[1])
    assert run(engine, [request])["a"].text in LABELS[1]


def test_models_of_noised_embeddings_are_refused() -> None:
    name = "tiny-diffuseq"
    engine = engine_of(name)
    with pytest.raises(UsageError, match="choices: expected a model of tokens"):
        engine.submit(ask(engine, "a", "hello", ["yes", "no"], Decoding(max_tokens=8)))


TRAINED = ("tiny-masked", "tiny-discrete-flow", "tiny-uniform", "summarizer")


@pytest.mark.parametrize("name", TRAINED)
def test_trained_models_choose(name: str) -> None:
    """Among the bundled ones, and beside each other."""
    denoiser = load_denoiser(name, device="cpu", dtype="fp32")
    engine = Engine(denoiser, Tokenizer.load(name))
    labels = ("a web server", "a library", "documentation")
    text = "Documentation of a library: manual pages and examples."
    together = run(engine, [ask(engine, str(i), text[i:], labels) for i in range(4)])
    alone = run(engine, [ask(engine, "0", text, labels)])["0"]
    assert alone.text in labels
    assert together["0"].text == alone.text
    assert together["0"].choice_probability == pytest.approx(alone.choice_probability, rel=1e-4)
