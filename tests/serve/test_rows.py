"""Rows of a dataset as requests to a replica: alone, and through Ray Data's own processor."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import ray.data
from ray.data.llm import ServeDeploymentProcessorConfig, build_processor

from raydiff.client import Refusal
from raydiff.config import deployment_name
from raydiff.errors import DeadlineExceeded, EngineError, Overloaded
from raydiff.launch import RunningApp
from raydiff.openai.prompts import PromptReader
from raydiff.request import Completion, Decoding, GenerationRequest
from raydiff.serve.replica import ReplicaCore
from raydiff.serve.rows import RowAnswerer
from tests.serve.conftest import MODEL

ADDED = {"request_id": "0", "idx_in_batch": 0}
"""What Ray's processor puts into each row."""


@pytest.fixture
def rows(core: ReplicaCore, reader: PromptReader) -> RowAnswerer:
    return RowAnswerer(tokenizer=reader.tokenizer, generator=core)


async def test_a_row_is_answered_as_the_same_request_is(
    rows: RowAnswerer, core: ReplicaCore, reader: PromptReader
) -> None:
    decoding = Decoding(max_tokens=9, temperature=0.7, seed=4, stop=("zz",))
    request = GenerationRequest(
        request_id="a",
        prompt_ids=reader.tokenizer.prompt_ids("a text"),
        decoding=reader.spec.resolve(decoding),
    )
    answers = await core.generate([request], 60)
    assert isinstance(answers, list)
    (wanted,) = answers
    settings = {"max_tokens": 9, "temperature": 0.7, "seed": 4, "stop": np.array(["zz"])}
    got = await rows.answer({"prompt": "a text", **settings, "top_k": None, **ADDED})
    assert got["text"] == wanted.text
    assert got["finish_reason"] == wanted.finish_reason
    assert got["usage"]["completion_tokens"] == wanted.usage.completion_tokens
    assert "label_probability" not in got
    ids = np.array(reader.tokenizer.encode("a text"))
    assert (await rows.answer({"prompt": ids, **settings}))["text"] == wanted.text


async def test_numbers_are_read_as_datasets_carry_them(rows: RowAnswerer) -> None:
    """Rows without a setting make those of all others floats, and have NaN themselves."""
    plain = {"prompt": "a text", "max_tokens": 9, "seed": 4, "temperature": 0.7}
    carried = {**plain, "max_tokens": 9.0, "seed": np.float64(4), "top_k": math.nan}
    assert (await rows.answer(carried)) == (await rows.answer(plain))
    with pytest.raises(ValueError, match="max_tokens: expected an integer"):
        await rows.answer({**plain, "max_tokens": 9.5})


async def test_a_chat_is_a_prompt_too(rows: RowAnswerer) -> None:
    chat = np.array([{"role": "user", "content": "hello"}])
    got = await rows.answer({"messages": chat, "max_tokens": 4})
    assert got["usage"]["prompt_tokens"] > 0


async def test_rows_with_labels_get_one_of_them(rows: RowAnswerer) -> None:
    got = await rows.answer({"prompt": "hello", "labels": ["spam", "ham"], **ADDED})
    assert got["text"] in ("spam", "ham")
    assert 0.5 <= got["label_probability"] <= 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "x", "tempature": 1.0}, "tempature"),
        ({"prompt": "x", "temperature": -1.0}, "temperature: expected"),
        ({"prompt": "x", "max_tokens": 10**6}, "max_tokens: expected at most"),
        ({}, "prompt: expected either a prompt or messages"),
        ({"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, "either a prompt"),
        ({"prompt": "x" * 1000}, "prompt: expected at most"),
        ({"prompt": "x", "labels": ["a"]}, "labels: expected at least two"),
        (
            {"prompt": "x", "labels": ["yes", "no!"]},
            "labels in tokens that .* may write, got 'no!'",
        ),
    ],
)
async def test_what_cannot_be_answered_is_a_value_error_that_names_it(
    rows: RowAnswerer, row: dict[str, Any], message: str
) -> None:
    """The kind of error of which Ray's processor makes an error row."""
    with pytest.raises(ValueError, match=message):
        await rows.answer(row)


class Refusing:
    """Refuses so many calls, then fails or answers."""

    def __init__(self, core: ReplicaCore, *refusals: Exception) -> None:
        self._core = core
        self._refusals = list(refusals)

    async def generate(
        self, requests: Sequence[GenerationRequest], timeout_s: float
    ) -> list[Completion] | Refusal:
        if self._refusals:
            return Refusal(error=self._refusals.pop(0))  # type: ignore[arg-type]
        return await self._core.generate(requests, timeout_s)


async def test_a_row_waits_while_the_queue_is_full(core: ReplicaCore, reader: PromptReader) -> None:
    """The processor itself would end the job at the first refusal."""
    full = Overloaded("full", retry_after_s=0.01)
    rows = RowAnswerer(tokenizer=reader.tokenizer, generator=Refusing(core, full, full))
    assert (await rows.answer({"prompt": "x", "max_tokens": 4}))["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("refusal", "raised"),
    [
        (Overloaded("full", retry_after_s=5.0), TimeoutError),
        (DeadlineExceeded("late"), TimeoutError),
        (EngineError("broken"), EngineError),
    ],
)
async def test_lateness_is_a_timeout_and_a_broken_engine_is_no_error_of_the_row(
    core: ReplicaCore, reader: PromptReader, refusal: Exception, raised: type[Exception]
) -> None:
    rows = RowAnswerer(tokenizer=reader.tokenizer, generator=Refusing(core, refusal))
    with pytest.raises(raised):
        await asyncio.wait_for(rows.answer({"prompt": "x", "timeout_s": 1.0}), 30)


def test_ray_datas_own_processor_drives_a_replica(serving: RunningApp) -> None:
    """Texts, labels and rows that fail, in one dataset, with nothing of ours on the way."""
    processor = build_processor(
        ServeDeploymentProcessorConfig(
            deployment_name=deployment_name(MODEL),
            app_name=serving.app_name,
            batch_size=8,
            concurrency=1,
            should_continue_on_error=True,
        ),
        preprocess=_asked,
        postprocess=_told,
        preprocess_map_kwargs={"num_cpus": 0.5},
        postprocess_map_kwargs={"num_cpus": 0.5},
    )
    documents = ray.data.from_items([{"number": i} for i in range(20)], override_num_blocks=2)
    rows = processor(documents).take_all()
    assert len(rows) == 20
    failed = [row for row in rows if row["__inference_error__"]]
    good = {row["number"]: row for row in rows if not row["__inference_error__"]}
    assert len(failed) == 2
    assert all("temperature: expected" in row["__inference_error__"] for row in failed)
    assert set(good) == set(range(20)) - {7, 13}
    for number, row in good.items():
        assert row["tokens"] == (4 if number % 2 else 3)
        assert (row["text"] in ("yes", "nay")) == (number % 2 == 0)
    alike = {row["text"] for number, row in good.items() if number % 4 == 1}
    assert len(alike) == 1  # the same prompt


def _asked(row: dict[str, Any]) -> dict[str, Any]:
    """Even rows choose, odd ones write; two ask for the impossible."""
    number = row["number"]
    asked: dict[str, Any] = {"prompt": f"document {number % 4}"}
    if number % 2:
        asked |= {"max_tokens": 4, "seed": 1, "temperature": -1.0 if number in (7, 13) else 0.0}
    else:
        asked |= {"labels": ["yes", "nay"]}
    return {"method": "answer_row", "request_kwargs": asked, "number": number}


def _told(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "number": row["number"],
        "text": row["text"],
        "tokens": row["usage"]["completion_tokens"],
        "__inference_error__": "",
    }
