"""What a server counts, as Prometheus reads it."""

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ds4agent.server.api.output import Usage

if TYPE_CHECKING:
    from ds4agent.server.reuse import Ready

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    """The counters of one server. May be used by several threads."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "ds4_requests", "Requests by interface and status", ["api", "status"], **self._kind
        )
        self._answers = Counter(
            "ds4_answers", "Answers by the reason they ended", ["finish"], **self._kind
        )
        self._prompt = Counter(
            "ds4_prompt_tokens",
            "Tokens of prompts by where they came from",
            ["source"],
            **self._kind,
        )
        self._completion = Counter("ds4_completion_tokens", "Tokens sampled", **self._kind)
        self._read = Counter("ds4_prefill_tokens", "Tokens evaluated in prompts", **self._kind)
        self._wait = Histogram(
            "ds4_queue_seconds", "Time in the queue", buckets=_SECONDS, **self._kind
        )
        self._work = Histogram(
            "ds4_answer_seconds", "Time of the engine for an answer", buckets=_SECONDS, **self._kind
        )
        self.queue = Gauge("ds4_queue_length", "Requests that wait", **self._kind)
        self.busy = Gauge("ds4_busy", "1 while a request is answered", **self._kind)

    @property
    def _kind(self) -> dict[str, CollectorRegistry]:
        return {"registry": self._registry}

    def request(self, api: str, status: int) -> None:
        """Count a request by the status it was answered with."""
        self._requests.labels(api, str(status)).inc()

    def read_tokens(self, n_tokens: int) -> None:
        """Count the tokens of a chunk."""
        self._read.inc(n_tokens)

    def waited(self, seconds: float) -> None:
        """Note how long a request waited."""
        self._wait.observe(seconds)

    def answered(
        self, finish: str, ready: "Ready | None", usage: Usage | None, seconds: float
    ) -> None:
        """Note what an answer cost."""
        self._answers.labels(finish).inc()
        self._work.observe(seconds)
        if ready is not None:
            self._prompt.labels(ready.source).inc(ready.n_cached)
            self._prompt.labels("read").inc(ready.n_prompt - ready.n_cached)
        if usage is not None:
            self._completion.inc(usage.completion)

    def text(self) -> bytes:
        """Return the exposition."""
        return generate_latest(self._registry)
