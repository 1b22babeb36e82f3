"""Every setting raydiff has, frozen, with its unit in its name; the only reader of the environment.

Settings cross process boundaries (Serve application arguments, Ray workers), so they are pydantic
models that refuse unknown keys.
"""

from __future__ import annotations

import os
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["auto", "fp32", "bf16", "fp16", "int8", "int4"]
Endpoint = Literal["/v1/chat/completions", "/v1/completions"]

APP_NAME = "raydiff"
"""Name of the Serve application."""


class Settings(BaseModel):
    """Base of all settings: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class EngineSettings(Settings):
    """One engine: how much it takes on at once."""

    max_rows: int = Field(64, ge=1, le=4096)
    """Most requests denoised at the same time."""
    max_prefill_rows: int = Field(32, ge=1, le=4096)
    """Most prompts encoded in one forward."""
    max_prefill_tokens: int = Field(32768, ge=1)
    """Most prompt positions encoded in one forward, padding included; one prompt always fits."""
    memory_budget_bytes: int = Field(0, ge=0)
    """Bytes that caches and activations of admitted requests may take; 0 works it out from
    the device's free memory."""
    prefix_cache_bytes: int | None = Field(None, ge=0)
    """Of those, bytes that keep the beginnings of prompts for later requests to reuse; 0 keeps
    none. `None` is an eighth where prompts can share a beginning, and none where a prompt is
    encoded as one piece (encoder-block): there only identical prompts could be reused, and a
    corpus of documents would fill it in vain."""
    max_queued: int = Field(4096, ge=1)
    """Requests of each lane that may be in flight beyond `max_rows`, before `Overloaded`. One
    tenant alone may fill that; another then still has its equal share, beyond it."""
    rider_share: float = Field(0.25, ge=0.0, le=4.0)
    """How much longer a forward of interactive requests may take for the batch requests that ride
    along in it, by the costs of forwards measured so far."""
    batch_yield_loss: float = Field(0.05, ge=0.0, lt=1.0)
    """Share of the batch lane's speed that is given up to shorten its forwards, which is what an
    interactive request waits for, once interactive requests have come in the last minutes."""
    batch_share: float = Field(0.05, ge=0.0, le=0.9)
    """Least share of forward time for batch requests while interactive ones never pause; 0 lets
    them wait."""
    max_restarts: int = Field(3, ge=0)
    """Times that a batch request may have to start over for an interactive one's memory."""
    threads: int = Field(0, ge=0)
    """CPU threads of the model; 0 means the cores this process may use."""

    @property
    def max_in_flight(self) -> int:
        """Requests of one lane, waiting or admitted, before `Overloaded`."""
        return self.max_queued + self.max_rows


class AutoscalingSettings(Settings):
    """When a model's replicas are added and removed, between its bounds, by their backlog: seconds
    of work in the replicas, at the speed they have lately had."""

    policy: Literal["backlog", "requests"] = "backlog"
    """What is counted: the backlog, or calls in flight as Serve does by itself, with its defaults
    in place of the settings below."""
    interactive_target_s: float = Field(1.0, gt=0)
    """Seconds of interactive work above which replicas are added."""
    batch_target_s: float = Field(30.0, gt=0)
    """Seconds of work of both lanes above which replicas are added."""
    look_back_s: float = Field(10.0, gt=0)
    """Seconds over which a replica's backlog is averaged."""
    stats_interval_s: float = Field(10.0, gt=0)
    """How often replicas and handles report to the controller. Serve 2.60 says of every other value
    than 10 that the field it goes to is deprecated; it works."""
    up_cooldown_s: float = Field(15.0, ge=0)
    """Seconds between two additions: time for new replicas to start and to take work."""
    down_after_s: float = Field(120.0, ge=0)
    """Replicas are removed when fewer have been enough for so long."""
    max_step: int = Field(8, ge=1)
    """Replicas added or removed at once, at most."""
    utilization: float = Field(0.7, gt=0, le=1)
    """Replicas are not removed where those left would be busier than this."""


class ModelSettings(Settings):
    """One model served by the app."""

    name: str = ""
    """Name that requests use; empty means the last part of `model`."""
    model: str = "summarizer"
    """Bundled name, checkpoint directory, random:PRESET, or simulated:... (`raydiff.simulated`)."""
    device: Device = "auto"
    dtype: Dtype = "auto"
    num_gpus: float = Field(0.0, ge=0.0)
    """GPUs (or a fraction of one) reserved per replica."""
    num_cpus: float = Field(1.0, gt=0.0)
    """CPUs reserved per replica."""
    accelerator_type: str | None = None
    """Ray accelerator type a replica must run on, e.g. "H100"."""
    min_replicas: int = Field(1, ge=0)
    """With 0, an idle model gives its resources back; the next request waits for a replica to
    load, up to its own deadline."""
    max_replicas: int = Field(1, ge=1)
    autoscaling: AutoscalingSettings = AutoscalingSettings()
    """When there are how many, between the two."""
    batch_only: bool = False
    """Whether all requests are batch work: they wait for `batch_target_s` rather than
    `interactive_target_s` before replicas are added."""
    documents_per_call: int = Field(16, ge=1)
    """Documents that one corpus call carries; `target_ongoing_requests` follows from it."""
    stall_s: float = Field(16.0, gt=0)
    """With work to do, a replica that finishes no forward for this long is unhealthy; Serve kills
    it within 12 s more. Above 18, a stalled replica is not gone within 30 s."""
    update_surge_percent: int = Field(0, ge=0, le=100)
    """Replicas of a new version that may start beside the old ones, as a percentage of them. 0
    stops old replicas first, which needs no spare resources; a model with one replica then makes
    its calls wait while the new one loads."""
    engine: EngineSettings = EngineSettings()

    @property
    def target_ongoing_requests(self) -> float:
        """Calls in flight per replica that fill its rows: a call carries many documents."""
        return max(1.0, self.engine.max_rows / self.documents_per_call)

    @property
    def served_name(self) -> str:
        """The name that requests use."""
        return self.name or os.path.basename(self.model.rstrip("/"))


class StorageSettings(Settings):
    """How object stores are reached. Credentials are no settings: the libraries that need them
    find them by themselves, in the environment, in profiles or from the machine's role."""

    endpoint_url: str | None = None
    """Of an S3-compatible store; `None` is Amazon's."""
    region: str | None = None
    """`None` takes that of environment or profile, and a bucket's own at Amazon."""
    anonymous: bool = False
    """Whether requests are not signed, as public buckets allow."""
    patience_s: float = Field(120.0, gt=0)
    """How long a request is repeated while the store throttles, fails or is away."""
    multipart_bytes: int = Field(64 * 2**20, ge=5 * 2**20)
    """Files above this size are written in parts."""
    lease_s: float = Field(90.0, ge=1)
    """How long after its driver's last sign of life a run may be taken over by another."""


class BatchSettings(Settings):
    """OpenAI's Files and Batch API."""

    location: str
    """Directory, by its absolute path, or s3://BUCKET/PREFIX, of all files and batches. On a disk
    it must be one that gateways and the head node share."""
    storage: StorageSettings = StorageSettings()
    jobs_url: str | None = None
    """Of the Ray job server that runs batches, e.g. http://HEAD:8265; `None` asks the cluster."""
    shared_filesystem: bool = False
    """Whether a local `location` is on a disk that every node mounts."""
    max_file_bytes: int = Field(200 * 2**20, ge=1024)
    """Largest uploaded file."""
    max_lines: int = Field(50_000, ge=1)
    """Most requests of a batch."""
    max_line_bytes: int = Field(2**20, ge=256)
    """Longest line of a batch's input."""
    shard_lines: int = Field(32, ge=1)
    """Lines that are committed together: what a cancelled or killed batch may have to lose."""
    lines_per_call: int = Field(16, ge=1)
    """Requests that travel to a replica together."""
    max_jobs: int = Field(4, ge=1)
    """Batches whose jobs run at the same time; others wait, and keys take turns."""
    poll_s: float = Field(5.0, gt=0)
    """How often a gateway looks after the jobs of unfinished batches."""

    @field_validator("location")
    @classmethod
    def _require_absolute(cls, location: str) -> str:
        if "://" not in location and not os.path.isabs(location):
            raise ValueError("expected an absolute path or s3://BUCKET/PREFIX")
        return location


class AccessSettings(Settings):
    """Who may call the endpoint, how large a request may be, and what is logged of it."""

    keys_file: str | None = None
    """File of API keys (`raydiff keys new` makes entries), or directory of such files, as
    Kubernetes mounts a Secret; read on every node that runs a gateway. `None` asks for no key."""
    anonymous: Literal["loopback", "allowed"] = "loopback"
    """Without `keys_file`: whether the endpoint may listen on other addresses than loopback,
    where everyone who reaches it may use it."""
    reload_s: float = Field(1.0, gt=0)
    """How old the knowledge of `keys_file` may be."""
    max_rows: int = Field(1024, ge=1)
    """Most answers that one request may ask for: its prompts times `n`."""
    max_prompt_tokens: int = Field(2**20, ge=1)
    """Most prompt tokens of one request, over all its prompts."""
    max_header_bytes: int = Field(32 * 1024, ge=1024)
    """Most bytes of a request's headers and path."""
    max_timeout_s: float = Field(3600.0, gt=0)
    """Longest deadline that a client may ask for."""
    log_requests: bool = False
    """Whether each request is logged to standard output: one JSON object a line, with its id, key
    id, model, status, tokens and seconds; never a text."""
    log_text: bool = False
    """Whether what went wrong is logged with the exceptions' messages, which may quote prompts."""


class AppSettings(Settings):
    """Arguments of `raydiff.serve.app:build_app`."""

    models: tuple[ModelSettings, ...] = ()
    """Models to serve; empty means one, made of the shorthand fields below."""
    model: str = "summarizer"
    replicas: int = Field(1, ge=1)
    """Shorthand: replicas of `model` (fixed, no autoscaling)."""
    threads: int = Field(0, ge=0)
    """Shorthand: CPU threads of each replica's engine."""
    num_gpus: float = Field(0.0, ge=0.0)
    """Shorthand: GPUs (or a fraction of one) reserved per replica."""
    request_timeout_s: float = Field(600.0, gt=0)
    """Deadline of an HTTP request when the client names none."""
    max_body_bytes: int = Field(8 * 2**20, ge=1024)
    """Largest request body."""
    access: AccessSettings = AccessSettings()
    batches: BatchSettings | None = None
    """OpenAI's Files and Batch API; `None` leaves it off."""
    gateways: int = Field(1, ge=1)
    """Replicas of the gateway. One of several that dies takes only its own requests along."""
    drain_s: float = Field(20.0, ge=0)
    """How long requests in flight may take to end when a gateway, a replica or the whole app is
    stopped; new ones get 503 meanwhile."""


class ServeSettings(Settings):
    """Where the HTTP endpoint listens. Loopback unless told otherwise."""

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    haproxy: bool = False
    """Whether HAProxy, which Ray brings along, takes the place of Serve's own proxy. Its pages of
    statistics and metrics listen on all interfaces."""


class TaskSettings(Settings):
    """What is asked of the model with each document."""

    kind: Literal["summarize", "rewrite", "label", "request"] = "summarize"
    """Of "request", each document is the body of a request to OpenAI's `endpoint`, with all that
    is to be done in it."""
    endpoint: Endpoint = "/v1/chat/completions"
    """Of requests: what their bodies are meant for."""
    fingerprint: str = ""
    """Of requests: what answers carry as `system_fingerprint`."""
    template: str | None = None
    """Prompt with `{text}` where the document goes; `None` is the task's usual one."""
    system: str | None = None
    """System prompt, for models with a chat template."""
    examples: tuple[tuple[str, str], ...] = ()
    """Documents with their answers, shown before each document."""
    labels: tuple[str, ...] = ()
    """The answers to choose from."""
    target_words: int | None = Field(None, ge=1)
    """Length to ask for; it also sets `max_tokens` where that is not given."""
    merge_template: str | None = None
    """Prompt with `{text}` where the summaries of a document's chunks go; `None` is `template`."""

    @property
    def output_column(self) -> str:
        """Column of the output that holds the answer."""
        return _OUTPUT_COLUMNS[self.kind]


_OUTPUT_COLUMNS = {
    "summarize": "summary",
    "rewrite": "rewrite",
    "label": "label",
    "request": "response",
}


class CorpusSettings(Settings):
    """One corpus run."""

    input: str
    output: str
    model: str = "summarizer"
    served_as: str = ""
    """Name by which the app serves the model; empty means the last part of `model`."""
    tenant: str = ""
    """On whose behalf the run is: tenants take turns at the replicas."""
    instruction: str | None = None
    """What to tell a model with a chat template to do with each document; `None` takes a default.
    Other models take the bare text."""
    text_column: str = "text"
    id_column: str | None = None
    """`None` takes a column named doc_id or id if there is one, else ids are `file:row`."""
    pass_columns: tuple[str, ...] = ()
    """Input columns carried to the output rows."""
    shard_rows: int = Field(256, ge=1)
    replicas: int | None = Field(None, ge=1)
    """Replicas when the run starts its own app; `None` means one per two cores."""
    workers: int | None = Field(None, ge=1)
    """Async workers that stream shards to the replicas; `None` means one per four replicas."""
    shards_in_flight: int | None = Field(None, ge=1)
    """Shards that one worker has in hand at a time; `None` takes as many as keep the replicas busy
    while the next ones are read."""
    documents_per_call: int = Field(16, ge=1)
    calls_in_flight: int | None = Field(None, ge=1)
    """Calls that a worker keeps in flight; `None` follows the replicas' speed."""
    call_timeout_s: float = Field(300.0, gt=0)
    max_attempts: int = Field(3, ge=1)
    """Attempts per document before it becomes an error row."""
    seed: int = Field(0, ge=0)
    task: TaskSettings = TaskSettings()
    storage: StorageSettings = StorageSettings()
    input_storage: StorageSettings | None = None
    """Where the input is reached otherwise than the output, e.g. without credentials; `None`
    means alike."""
    shared_filesystem: bool = False
    """Whether local paths are on a disk that every node mounts."""
    on_long: Literal["chunk", "truncate", "fail"] = "chunk"
    """What becomes of documents longer than a prompt."""
    on_empty: Literal["fail", "skip"] = "fail"
    """What becomes of documents that are null, empty or white space: a row of the errors, or one
    with an empty answer."""
    max_document_tokens: int | None = Field(None, ge=1)
    """Tokens of a document's text that are read at most, over all its chunks; what lies beyond is
    left out and its row marked (`truncated`). `None` reads all."""
    merge_depth: int = Field(8, ge=1)
    """Levels of summaries of summaries at most. In the last one every summary that is left gets
    an equal share of one prompt."""
    dedupe: bool = True
    """Whether documents with the same text are generated once."""
    append: bool = False
    """Whether files that were added to the input since the run began are planned too."""
    max_failed_fraction: float = Field(1.0, ge=0.0, le=1.0)
    """Failed documents over all, above which the run ends."""
    stuck_call_s: float = Field(30.0, gt=0)
    """A call that takes longer than this, and ten times longer than any lately, is cancelled and
    tried on another replica."""
    stuck_after_s: float = Field(300.0, gt=0)
    """A shard without progress for this long is given to another worker."""


def deployment_name(served_name: str) -> str:
    """Name of the Serve deployment that hosts a model's replicas."""
    return f"model-{served_name}"


def usable_cores() -> int:
    """CPU cores this process may use (its affinity mask, not the machine's count)."""
    return max(1, len(os.sched_getaffinity(0)))


def in_submitted_job() -> bool:
    """Whether this process is the entry point of a `ray job submit`."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def ray_address() -> str | None:
    """Address of the Ray cluster that `RAY_ADDRESS` names, if any."""
    return os.environ.get("RAY_ADDRESS") or None


def dashboard_address() -> str:
    """URL of the cluster's dashboard, which takes Serve configs."""
    return os.environ.get("RAY_DASHBOARD_ADDRESS") or "http://127.0.0.1:8265"


def s3_endpoint_url() -> str | None:
    """Endpoint of an S3-compatible store that the environment names, if any."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    return next((url for name in names if (url := os.environ.get(name))), None)


def environment_value(name: str) -> str | None:
    """A secret that the user put into an environment variable, to keep it out of command lines."""
    return os.environ.get(name) or None
