"""An engine of a simulated model: real scheduling, canvases and commits, and no network."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from raydiff.config import EngineSettings
from raydiff.engine import Engine
from raydiff.errors import DecodingError, EngineError
from raydiff.request import Completion, Decoding, GenerationRequest

FAST = "simulated:32x8=8ms,block=16"


def engine(model: str = FAST, max_rows: int = 64) -> Engine:
    return Engine.load(model, settings=EngineSettings(max_rows=max_rows))


def texts(completions: list[Completion]) -> list[str]:
    return [completion.text for completion in completions]


PROMPTS = [f"prompt {i} {'x' * (i * 7 % 40)}" for i in range(12)]


@pytest.mark.parametrize("decoding", [
    Decoding(seed=1, max_tokens=40),
    Decoding(seed=1, temperature=0.0),
    Decoding(seed=1, policy="threshold", threshold=0.8, max_tokens=40),
    Decoding(seed=1, cache="none"),
])  # fmt: skip
def test_alone_as_in_any_batch_and_order(decoding: Decoding) -> None:
    many = texts(engine().generate(PROMPTS, decoding))
    few = texts(engine(max_rows=3).generate(PROMPTS[::-1], decoding))
    alone = engine()
    assert many == few[::-1] == [alone.generate([p], decoding)[0].text for p in PROMPTS]


def test_the_text_follows_from_the_prompt_and_the_seed() -> None:
    model = engine()
    first = model.generate(["a", "b"], Decoding(seed=1))
    other = model.generate(["a"], Decoding(seed=2))
    assert len({*texts(first), *texts(other)}) == 3


def test_a_request_takes_the_forwards_that_its_quota_says() -> None:
    (usual,) = engine().generate(["a"], Decoding(seed=1))
    assert (usual.usage.forwards, usual.usage.completion_tokens) == (8, 16)
    (long,) = engine().generate(["a"], Decoding(seed=1, max_tokens=48, steps=4))
    assert (long.usage.forwards, long.usage.completion_tokens) == (12, 48)


def test_texts_end_by_chance_and_average_the_tokens_declared() -> None:
    model = engine("simulated:64x1=1ms,tokens=20,longest=400")
    found = model.generate([str(i) for i in range(400)], Decoding(seed=1, max_tokens=400))
    mean = sum(c.usage.completion_tokens for c in found) / len(found)
    assert 15 < mean < 25
    assert {c.finish_reason for c in found} == {"stop"}
    whole = model.generate(["a"], Decoding(max_tokens=100, ignore_eos=True))
    assert whole[0].usage.completion_tokens == 100


def test_texts_are_letters_and_spaces() -> None:
    (found,) = engine().generate(["a"], Decoding(seed=1, max_tokens=200))
    assert len(found.text) == 200
    assert {*found.text} <= {*"abcdefghijklmnopqrstuvwxyz "}


def test_a_forward_sleeps_and_does_not_compute() -> None:
    model = engine("simulated:32x8=400ms")
    wall, cpu = time.monotonic(), time.thread_time()
    model.generate(["a"] * 8)
    assert time.monotonic() - wall >= 0.4
    assert time.thread_time() - cpu < 0.2


def test_choices_and_log_probabilities_are_answered() -> None:
    model = engine()
    choices = (tuple(model.tokenizer.encode("yes")), tuple(model.tokenizer.encode("no")))
    request = model.request("is it so?", Decoding(seed=1, max_tokens=8))
    model.submit(
        GenerationRequest(
            request_id="c",
            prompt_ids=request.prompt_ids,
            decoding=request.decoding,
            choices=choices,
        )
    )
    model.submit(model.request("a", Decoding(seed=1), request_id="l", logprobs=3))
    done: dict[str, Completion] = {}
    while model.has_work():
        done |= {e.request_id: e.completion for e in model.step() if e.completion is not None}
    assert done["c"].text in ("yes", "no")
    assert done["c"].choice_probability == pytest.approx(0.5)
    assert done["l"].logprobs is not None
    assert len(done["l"].logprobs) == 16
    for token in done["l"].logprobs:
        assert token.token_id == token.top[0][0]
        assert token.logprob == token.top[0][1] < 0


def test_policies_it_does_not_simulate_are_refused_by_name() -> None:
    with pytest.raises(DecodingError, match="policy"):
        engine().request("a", Decoding(policy="credit"))


def test_it_fails_after_the_forwards_its_name_says() -> None:
    with pytest.raises(EngineError, match="as its name asks"):
        engine("simulated:32x8=8ms,fail_after=3").generate(["a"])


def test_neither_its_engine_nor_a_replica_that_loads_it_loads_torch() -> None:
    code = """
import sys
from raydiff.config import ModelSettings
from raydiff.engine import EngineLoop
from raydiff.metrics import NullRecorder
from raydiff.serve.replica import Replica, load_engine
engine = load_engine(ModelSettings(model="simulated:32x8=8ms,load=1ms"), NullRecorder())
assert engine.generate(["a"])[0].text
EngineLoop(engine)
heavy = {"torch", "transformers", "safetensors"} & {name.split(".")[0] for name in sys.modules}
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
