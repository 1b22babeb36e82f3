"""A session of drills: one cluster, many runs, a line for each and a table at the end."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ..storage.proxy import fault_proxy
from ..storage.server import s3_server
from .cluster import DrillCluster
from .corpus import draw_corpus, sample_texts
from .faults import LOCAL_KINDS, Kind, Missed, SmallDisk
from .outputs import LocalOutput, Output, parts
from .runs import MAX_ATTEMPTS, Run
from .s3 import Store
from .verdict import Verdict, judge

ROWS = (28, 56)
"""Fewest and most documents of a drill."""
LAST_S = 90.0
"""The last drill begins this long before the time is over."""
POOL = 200
"""Documents that drills draw from."""
SMALL_POOL = 64
"""The same for sessions of a few drills, which begin sooner for it."""
FEW = 10


@dataclass(frozen=True, kw_only=True)
class Drill:
    """What came of one drill."""

    number: int
    kind: str
    seed: int
    moments: tuple[str, ...]
    rows_in: int
    rows_out: int
    errors_out: int
    starts: int
    seconds: float
    missed: bool
    """Whether the run was over before the fault came."""
    faults: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """In a word."""
        return "FAILED" if self.faults else "missed" if self.missed else "ok"

    def __str__(self) -> str:
        return (
            f"{self.number:3d} {self.kind:16s} {self.verdict:6s} seed {self.seed:<10d} "
            f"in {self.rows_in:2d} out {self.rows_out:2d}+{self.errors_out} "
            f"starts {self.starts} {self.seconds:5.1f} s  {'; '.join(self.moments)}"
            + "".join(f"\n      {fault}" for fault in self.faults[:8])
        )


class Session:
    """Drills on one cluster."""

    def __init__(self, seed: int | None, folder: Path | None) -> None:
        """Without a seed, a random one is taken and shown."""
        self._seed = random.SystemRandom().randrange(10**9) if seed is None else seed
        self._rng = random.Random(self._seed)
        self._folder = folder or Path(tempfile.mkdtemp(prefix="raydiff-drills-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        self._texts = sample_texts()
        self._reference: dict[str, str] = {}

    def run(
        self, count: int, names: Sequence[str] | None, minutes: float, report: Path | None
    ) -> int:
        """Run `count` drills that strike, of each kind in turn; the command's exit status."""
        print(f"seed {self._seed}, runs in {self._folder}", flush=True)
        began_s = time.monotonic()
        self._texts = self._texts[: POOL if count > FEW else SMALL_POOL]
        done: list[Drill] = []
        with ExitStack() as stack:
            stack.enter_context(_stderr_in(self._folder / "ray.log"))
            store = self._store(stack) if _wants_s3(names) else None
            cluster = self._cluster(stack)
            kinds = _chosen((*LOCAL_KINDS, *(store.kinds() if store else ())), names)
            self._make_reference(cluster)
            print(f"ready after {time.monotonic() - began_s:.0f} s", flush=True)
            for kind in self._order(kinds):
                struck = sum(not drill.missed for drill in done)
                if struck >= count or time.monotonic() - began_s > minutes * 60 - LAST_S:
                    break
                drill = self._drill(len(done) + 1, kind, cluster, store)
                done.append(drill)
                print(drill, flush=True)
        return self._sum_up(done, count, time.monotonic() - began_s, report)

    def _store(self, stack: ExitStack) -> Store:
        server = stack.enter_context(s3_server())
        proxy = stack.enter_context(fault_proxy(server.url, self._seed))
        os.environ.update(server.env)  # inherited by nodes, workers and drivers
        return Store(server, proxy, server.make_bucket())

    def _cluster(self, stack: ExitStack) -> DrillCluster:
        temp = Path(tempfile.mkdtemp(prefix="rd-"))  # short: sockets in it have short names
        stack.callback(shutil.rmtree, temp, ignore_errors=True)
        cluster = DrillCluster(temp)
        stack.callback(cluster.stop)
        cluster.start()
        return cluster

    def _order(self, kinds: Sequence[Kind]) -> Iterator[Kind]:
        """Each kind in turn, in an order of chance."""
        while True:
            yield from self._rng.sample(list(kinds), len(kinds))

    def _make_reference(self, cluster: DrillCluster) -> None:
        """The text of every document, from a run that nothing disturbs."""
        folder = self._folder / "reference"
        folder.mkdir()
        corpus = draw_corpus(folder / "corpus.parquet", self._rng, self._texts, len(self._texts))
        output = LocalOutput(folder / "out")
        settings = {"shard_rows": 48, "calls_in_flight": 16}
        run = Run(cluster, folder, corpus, output, self._rng, settings)
        run.start()
        run.finish()
        cluster.wait_until_quiet()
        for name in parts(output.files()):
            for row in output.table(name).to_pylist():
                self._reference[corpus.texts[row["source_row"]]] = row["summary"]
        if len(self._reference) != len(self._texts):
            raise RuntimeError("the undisturbed run lost rows")

    def _drill(self, number: int, kind: Kind, cluster: DrillCluster, store: Store | None) -> Drill:
        seed = self._rng.randrange(10**9)
        rng = random.Random(seed)
        folder = self._folder / f"{number:03d}-{kind.name}"
        folder.mkdir()
        began_s, clock = time.monotonic(), time.time()
        rows = rng.randint(*ROWS)
        corpus = draw_corpus(folder / "corpus.parquet", rng, self._texts, rows, kind.culprits)
        disk = SmallDisk(folder / "disk") if kind.where == "small" else None
        if disk is not None:
            disk.mount()
        output = self._output(folder, kind, store, disk)
        run = Run(cluster, folder, corpus, output, rng, kind.settings, kind.worker_hook)
        missed, trouble, verdict = False, [], None
        try:
            try:
                kind.strike(run)
            except Missed:
                missed = True
                run.finish()
            cluster.wait_until_quiet()
            verdict = judge(corpus, output, self._reference, run.committed, MAX_ATTEMPTS)
        except Exception as error:  # whatever went wrong is the drill's result
            trouble.append(f"{type(error).__name__}: {error}")
        finally:
            run.end()
            cluster.heal()
        drill = _result(number, kind, seed, run, verdict, trouble, missed, began_s)
        if drill.faults:
            cluster.keep_logs(folder / "logs", clock)
        self._tidy(folder, drill, disk)
        return drill

    def _output(
        self, folder: Path, kind: Kind, store: Store | None, disk: SmallDisk | None
    ) -> Output:
        if kind.where == "s3":
            assert store is not None
            return store.output(folder.name)
        return LocalOutput((disk.path if disk else folder) / "out")

    def _tidy(self, folder: Path, drill: Drill, disk: SmallDisk | None) -> None:
        """Keep the directory of a failed run."""
        if disk is not None:
            if drill.faults:
                shutil.copytree(disk.path, folder / "kept")
            disk.unmount()
        if not drill.faults:
            shutil.rmtree(folder)

    def _sum_up(
        self, done: Sequence[Drill], count: int, seconds: float, report: Path | None
    ) -> int:
        failed = [drill for drill in done if drill.faults]
        struck = sum(not drill.missed for drill in done)
        print(_table(done))
        print(f"{struck} drills in {seconds / 60:.1f} min, {len(failed)} failed; seed {self._seed}")
        if report is not None:
            content = {
                "seed": self._seed,
                "seconds": round(seconds, 1),
                "drills": [{**asdict(drill), "verdict": drill.verdict} for drill in done],
            }
            report.write_text(json.dumps(content, indent=1) + "\n")
        if failed:
            print(f"the runs that failed are in {self._folder}")
        if struck < count:
            print(f"only {struck} of {count} drills fitted into the time")
        return 1 if failed or struck < count else 0


@contextmanager
def _stderr_in(path: Path) -> Iterator[None]:
    """What Ray says of all that is broken here, in a file."""
    kept = os.dup(2)
    with path.open("w") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _wants_s3(names: Sequence[str] | None) -> bool:
    return names is None or any(name.startswith("s3") for name in names)


def _chosen(kinds: Sequence[Kind], names: Sequence[str] | None) -> list[Kind]:
    known = {kind.name: kind for kind in kinds}
    unknown = set(names or ()) - set(known)
    if unknown:
        raise SystemExit(f"--kinds: expected some of {', '.join(known)}, got {sorted(unknown)}")
    return [known[name] for name in names or known]


def _result(
    number: int,
    kind: Kind,
    seed: int,
    run: Run,
    verdict: Verdict | None,
    trouble: Sequence[str],
    missed: bool,
    began_s: float,
) -> Drill:
    return Drill(
        number=number,
        kind=kind.name,
        seed=seed,
        moments=tuple(run.moments),
        rows_in=len(run.corpus.texts),
        rows_out=verdict.rows_out if verdict else 0,
        errors_out=verdict.errors_out if verdict else 0,
        starts=run.starts,
        seconds=round(time.monotonic() - began_s, 1),
        missed=missed,
        faults=(*trouble, *(verdict.faults if verdict else ())),
    )


def _table(done: Sequence[Drill]) -> str:
    lines = [
        f"{'kind':16s} {'drills':>6s} {'rows':>6s} {'starts':>6s} {'mean s':>6s} {'failed':>6s}"
    ]
    for name in sorted({drill.kind for drill in done}):
        some = [drill for drill in done if drill.kind == name and not drill.missed]
        mean_s = sum(drill.seconds for drill in some) / max(1, len(some))
        lines.append(
            f"{name:16s} {len(some):6d} {sum(d.rows_in for d in some):6d} "
            f"{sum(d.starts for d in some):6d} {mean_s:6.1f} "
            f"{sum(bool(d.faults) for d in done if d.kind == name):6d}"
        )
    return "\n".join(lines)
