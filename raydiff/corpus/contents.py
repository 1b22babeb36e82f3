"""Which documents of a shard have the same content, and who generates it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b

from raydiff.corpus.answers import Summary
from raydiff.corpus.dedupe import Answer


def content_key(text: str, values: Mapping[str, str] | None = None) -> bytes:
    """Sixteen bytes that stand for the content of a document: its text, and the columns that its
    prompt names."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16)
    if values:
        digest.update(b"\0" + json.dumps(dict(values), sort_keys=True).encode())
    return digest.digest()


class Contents:
    """The distinct contents of a shard. The first document that has a content is generated, the
    others get its answer; if it fails, the next one is tried."""

    def __init__(self) -> None:
        self._members: dict[bytes, list[int]] = {}
        """Documents without an outcome, by content, in order."""
        self._keys: dict[int, bytes] = {}
        self._parked: set[bytes] = set()
        self._begun: set[bytes] = set()
        self._results: dict[bytes, bytes] = {}
        self._failed: list[bytes] = []

    def add(self, index: int, key: bytes) -> None:
        """A document and its content."""
        self._keys[index] = key
        self._members.setdefault(key, []).append(index)

    def key(self, index: int) -> bytes:
        """The content of a document."""
        return self._keys[index]

    @property
    def claimable(self) -> list[bytes]:
        """Contents neither begun nor answered."""
        return [key for key in self._members if key not in self._begun]

    @property
    def waiting(self) -> bool:
        """Whether some are being generated elsewhere."""
        return bool(self._parked)

    def answer(self, key: bytes, answer: Answer) -> Summary | None:
        """Take what is known of a claimable content; the summary if there is one."""
        self._parked.discard(key)
        if answer == "taken":
            self._parked.add(key)
        return Summary.from_bytes(answer) if isinstance(answer, bytes) else None

    def begin(self) -> list[int]:
        """The documents to generate now, one for each content that nobody has begun."""
        ready = [key for key in self.claimable if key not in self._parked]
        self._begun.update(ready)
        return [self._members[key][0] for key in ready]

    def succeed(self, key: bytes, summary: Summary) -> list[int]:
        """All documents of a content have this summary; returns them."""
        if key in self._begun:
            self._results[key] = summary.to_bytes()
        return self._close(key)

    def fail(self, index: int) -> None:
        """One document has failed; the next one with its content, if any, is to be begun."""
        key = self._keys[index]
        self._begun.discard(key)
        self._members[key].remove(index)
        if not self._members[key]:
            self._failed.append(key)
            self._close(key)

    def fail_all(self, index: int) -> list[int]:
        """A document has failed, and so must all that are like it; returns them."""
        key = self._keys[index]
        self._failed.append(key)
        return self._close(key)

    def settlement(self) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Results of contents begun here, and those that failed; each is told once."""
        results, failed = self._results, self._failed
        self._results, self._failed = {}, []
        return results, failed

    def _close(self, key: bytes) -> list[int]:
        self._begun.discard(key)
        self._parked.discard(key)
        return self._members.pop(key)
