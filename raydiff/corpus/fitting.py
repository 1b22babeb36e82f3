"""Documents of a shard as prompts, each with its own columns where the template names some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from raydiff.errors import DocumentTooLong, RaydiffError, UsageError
from raydiff.text import DocumentPrompts, Fitted, LengthPolicy


@dataclass(frozen=True, kw_only=True)
class Fitter:
    """Makes the prompts of documents, which are known by their index in the shard."""

    prompts: DocumentPrompts
    policy: LengthPolicy
    values: Sequence[Mapping[str, str]] | None = None
    """The columns that the template names, for each document; `None` if it names none."""

    def prompts_of(self, index: int) -> DocumentPrompts:
        """Those of one document.

        Raises:
            UsageError: its columns leave no room for text.
        """
        return self.prompts.bound(self.values[index]) if self.values else self.prompts

    def fit(self, indices: Sequence[int], texts: Sequence[str]) -> Iterator[Fitted | RaydiffError]:
        """Each document as prompts that fit, or why it has none."""
        if not self.values:
            yield from self.prompts.fit(texts, self.policy)
            return
        for index, text in zip(indices, texts, strict=True):
            try:
                yield from self.prompts_of(index).fit([text], self.policy)
            except UsageError as error:
                yield DocumentTooLong(str(error))
