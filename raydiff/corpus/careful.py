"""How a shard is begun again that took its worker along: document by document.

One death, and a second, may be anybody's: a machine that went away, another shard of the same
worker. From the third start on each span is read and each document prepared with a mark on disk
and nothing else going on in the worker, so that the one that is to blame names itself. A shard
whose worker goes on dying with no document to blame is given up late: no run of bad luck with
machines is that long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raydiff.corpus.attempts import ShardAttempts
from raydiff.corpus.reading import Rejected

CAREFUL_FROM = 2
"""Deaths of its worker after which a shard is prepared document by document."""
MAX_UNEXPLAINED = 10
"""Deaths beyond those that no document explains, after which a shard is given up."""


def hopeless(attempts: ShardAttempts, deaths: int) -> Rejected | None:
    """Why a whole shard is given up; `None` if it is not."""
    if deaths - attempts.explained < CAREFUL_FROM + MAX_UNEXPLAINED:
        return None
    message = (
        f"The worker died {deaths} times while it had this shard in hand, and each of its "
        "documents could be prepared alone."
    )
    return Rejected(error_type="WorkerDied", message=message, attempts=deaths)


def condemned_span(attempts: ShardAttempts, span: int, max_attempts: int) -> Rejected | None:
    """Why a span is not read any more; `None` if it is."""
    deaths = attempts.span_deaths(span)
    if deaths < max_attempts:
        return None
    message = f"The worker died {deaths} times while it read these rows."
    return Rejected(error_type="WorkerDied", message=message, attempts=deaths)


def without_condemned(
    texts: Sequence[str | Rejected], attempts: ShardAttempts, max_attempts: int
) -> list[str | Rejected]:
    """The texts, those rejected that took too much along."""
    kept = list(texts)
    for index in attempts.guilty:
        deaths = attempts.deaths(index)
        if deaths >= max_attempts:
            kind = attempts.reason(index)
            what = "worker" if kind == "WorkerDied" else "replica"
            message = f"The {what} died {deaths} times while it had this document alone in hand."
            kept[index] = Rejected(error_type=kind, message=message, attempts=deaths)
    return kept


def probe_each(
    texts: Sequence[str | Rejected],
    attempts: ShardAttempts,
    probe: Callable[[list[str | Rejected]], object],
) -> None:
    """Prepare each text alone with a mark on disk. `probe` takes the texts with all others
    rejected."""
    other = Rejected(error_type="NotNow", message="")
    for index, text in enumerate(texts):
        if isinstance(text, str):
            alone: list[str | Rejected] = [other] * len(texts)
            alone[index] = text
            with attempts.risk_document(index):
                probe(alone)
