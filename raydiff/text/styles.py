"""What a task says to a model around each document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from raydiff.config import TaskSettings
from raydiff.decoding import Decoding
from raydiff.errors import UsageError, invalid
from raydiff.families import load_spec
from raydiff.text.filling import Template, escaped, require_fields
from raydiff.text.labels import decoding_for_labels, label_tokens
from raydiff.text.template import load_chat_template
from raydiff.text.tokenizer import Tokenizer

BARE = "{text}"
_SUMMARIZE = "Summarize the following text in"
DEFAULT_INSTRUCTION = f"{_SUMMARIZE} one or two sentences."
_REWRITE = "Rewrite the following text in plain and simple words."
_LABEL = (
    "Which of these labels fits the following text best: {labels}? Answer with the label alone."
)
_BARE_LABEL = "{{text}}\n\nOf the labels {labels}, the one that fits this text best:"

_REWRITE_TOKENS = 512
"""Most tokens of a rewritten chunk, where nobody says."""
_TOKENS_PER_WORD = 2
"""Room for words: tokenizers of many languages spend between one and two tokens on a word."""
_MAX_EXAMPLES_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class PromptStyle:
    """How a prompt is made of a document; plain values, part of what makes a run this run."""

    chat: bool = False
    """Whether a user asks in a chat; otherwise the prompt is plain text."""
    template: str = BARE
    """Has `{text}` where the document goes."""
    merge_template: str = BARE
    """Has `{text}` where summaries go that are to be merged."""
    system: str | None = None
    """System prompt of a chat."""
    examples: tuple[tuple[str, str], ...] = ()
    """Texts and answers that come before the document."""

    def bound(self, values: Mapping[str, str]) -> PromptStyle:
        """The style for one document, with its columns in place of the templates' fields."""
        return replace(
            self,
            template=Template(self.template).bind(values).source,
            merge_template=Template(self.merge_template).bind(values).source,
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """Columns that the templates name."""
        names = (*Template(self.template).fields, *Template(self.merge_template).fields)
        return tuple(dict.fromkeys(names))

    @classmethod
    def asking(cls, instruction: str | None) -> PromptStyle:
        """An instruction before each text in one message of a user; None is the bare text."""
        if instruction is None:
            return cls()
        template = f"{escaped(instruction)}\n\n{BARE}" if instruction else BARE
        return cls(chat=True, template=template, merge_template=template)


def prompt_style(
    model: str | Path,
    task: TaskSettings,
    instruction: str | None = None,
    columns: Sequence[str] = (),
) -> PromptStyle:
    """How a model is asked to do a task.

    The template is the task's own, else `instruction` before the text, else the usual instruction
    of the task. Models without a chat template take all of it as plain text; a summary is asked
    of them by the bare text. `columns` are the fields that a template may have beside `{text}`, as
    long as there are no examples, which have no columns.

    Raises:
        UsageError: the task and the model do not go together, or a template is malformed.
        ModelError: the model is unknown or malformed.
    """
    chat = load_chat_template(model) is not None
    _check(model, task, instruction, chat=chat)
    template = _usual(task, instruction, chat=chat) if task.template is None else task.template
    merge = template if task.merge_template is None else task.merge_template
    fields = () if task.examples else tuple(columns)
    require_fields(Template(template), fields)
    require_fields(Template(merge, "merge_template"), fields)
    return PromptStyle(
        chat=chat,
        template=template,
        merge_template=merge,
        system=task.system,
        examples=task.examples,
    )


def _check(model: str | Path, task: TaskSettings, instruction: str | None, *, chat: bool) -> None:
    if task.template is not None and instruction:
        remedy = "Put the instruction into the template, or leave one of them out."
        raise _refused("instruction", "none beside a template", instruction, remedy)
    if chat:
        return
    if instruction:
        remedy = "It has no chat template. Leave it out, or use a template."
        raise _refused("instruction", f"none for model {str(model)!r}", instruction, remedy)
    if task.system:
        remedy = "It has no chat template. Put it into the template."
        raise _refused("system", f"none for model {str(model)!r}", task.system, remedy)
    if task.kind == "rewrite" and task.template is None:
        remedy = "It has no chat template and cannot be told to rewrite otherwise."
        raise _refused("template", f"one for model {str(model)!r}", None, remedy)


def _refused(name: str, expected: str, got: object, remedy: str) -> UsageError:
    return UsageError(invalid(name, expected=expected, got=got, remedy=remedy), name)


def _usual(task: TaskSettings, instruction: str | None, *, chat: bool) -> str:
    if not chat:
        labels = escaped(", ".join(task.labels))
        return _BARE_LABEL.format(labels=labels) if task.kind == "label" else BARE
    if instruction == "":
        return BARE
    words = task.target_words
    if instruction is not None:
        asked = f"{instruction} Use about {words} words." if words else instruction
    elif task.kind == "summarize":
        asked = f"{_SUMMARIZE} about {words} words." if words else DEFAULT_INSTRUCTION
    elif task.kind == "rewrite":
        asked = f"{_REWRITE} Use about {words} words." if words else _REWRITE
    else:
        asked = _LABEL.format(labels=", ".join(task.labels))
    return f"{escaped(asked)}\n\n{BARE}"


def decoding_for(model: str | Path, task: TaskSettings, decoding: Decoding) -> Decoding:
    """The decoding settings, with those of the task where the caller gave none.

    `max_tokens` follows from the target length; of labels it is the longest one and its end, and
    of a rewrite what answers to long chunks take; never more than the model can write. Of labels
    the most likely one is taken (temperature 0).

    Raises:
        UsageError: the labels cannot be told apart.
        ModelError: the model is unknown or malformed.
    """
    if task.kind == "label":
        tokenizer = Tokenizer.load(model)
        labels = label_tokens(tokenizer, task.labels)
        return decoding_for_labels(tokenizer.spec, labels, decoding)
    if decoding.max_tokens is not None:
        return decoding
    spec = load_spec(model)
    if task.target_words is not None:
        wanted = max(task.target_words * _TOKENS_PER_WORD, decoding.min_tokens)
    elif task.kind == "rewrite":
        half = (spec.context_length or 2 * _REWRITE_TOKENS) // 2
        wanted = max(min(_REWRITE_TOKENS, half), decoding.min_tokens)
    else:
        return decoding
    return replace(decoding, max_tokens=min(wanted, spec.max_new_tokens))


def longest_text(task: TaskSettings, decoding: Decoding) -> int | None:
    """Most tokens of text that one answer can do justice to; `None` if that has no bound.

    A rewrite is about as long as what it rewrites, and has a fifth of its room to spare.
    """
    if task.kind != "rewrite" or task.target_words is not None:
        return None
    assert decoding.max_tokens is not None
    return max(1, decoding.max_tokens * 4 // 5)


def read_examples(path: str | Path) -> tuple[tuple[str, str], ...]:
    """Examples from a file of JSON lines, each with a "text" and its "answer".

    Raises:
        UsageError: the file cannot be read, is above 1 MiB, or a line is no example.
    """
    file = Path(path)
    try:
        if file.stat().st_size > _MAX_EXAMPLES_BYTES:
            expected = f"a file of at most {_MAX_EXAMPLES_BYTES} bytes"
            raise _refused("examples", expected, str(file), "")
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"examples: {file} cannot be read: {error}.", "examples") from error
    return tuple(
        _example(file, number, line) for number, line in enumerate(lines, 1) if line.strip()
    )


def _example(file: Path, number: int, line: str) -> tuple[str, str]:
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    if isinstance(fields, dict) and fields.keys() == {"text", "answer"}:
        text, answer = fields["text"], fields["answer"]
        if isinstance(text, str) and isinstance(answer, str):
            return text, answer
    expected = 'a JSON object with the texts "text" and "answer"'
    message = invalid(f"examples: {file} line {number}", expected=expected, got=line[:80])
    raise UsageError(message, "examples")
