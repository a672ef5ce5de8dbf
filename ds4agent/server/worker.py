"""The thread that owns the model: it answers one request after the other, first come first served.

``submit`` and ``stop`` may be called from any thread and never wait.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable

from ds4agent.errors import explain
from ds4agent.server.answering import Answerer
from ds4agent.server.api.errors import ApiError
from ds4agent.server.disk_cache import DiskCache
from ds4agent.server.job import Failed, Job
from ds4agent.server.metrics import Metrics
from ds4agent.server.prompt_tokens import PromptRenderer
from ds4agent.server.reuse import Reuse
from ds4agent.server.settings import ServerSettings
from ds4agent.server.shared_replay import SharedReplay
from ds4agent.server.trace import Trace
from engine.engine import Engine
from engine.errors import EngineError
from engine.memory import is_out_of_memory
from sessions.codecs import codec_for_family
from sessions.errors import CheckpointError
from sessions.kvc import Reason

_log = logging.getLogger(__name__)
OpenEngine = Callable[[Callable[[int, int], None], threading.Event], Engine]


class EngineWorker:
    """One model, and the requests that wait for it.

    Attributes:
        engine: Set once ``wait_until_ready`` returned, like the following.
        renderer: Renders prompts; for several threads.
        replay: Sampled calls.
        disk: The checkpoints; None where none are kept.
        busy: A request is being answered.
    """

    engine: Engine
    renderer: PromptRenderer

    def __init__(self, open_engine: OpenEngine, settings: ServerSettings, metrics: Metrics) -> None:
        self.replay = SharedReplay(settings.tool_memory_max_ids)
        self.disk: DiskCache | None = None
        self.busy = False
        self._open_engine = open_engine
        self._settings = settings
        self._metrics = metrics
        self._trace = Trace(settings.trace) if settings.trace is not None else None
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._lock = threading.Lock()
        self._running: Job | None = None
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._problem: BaseException | None = None
        self._waiting_calls: frozenset[str] = frozenset()
        self._thread = threading.Thread(target=self._run, name="ds4-engine", daemon=True)

    # --- any thread ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread: it loads the model."""
        self._thread.start()

    def wait_until_ready(self) -> None:
        """Wait until the model is loaded.

        Raises:
            Exception: whatever kept it from being loaded.
        """
        # With a timeout, so that an interrupt is noticed.
        while not self._ready.wait(0.2):
            pass
        if self._problem is not None:
            raise self._problem

    @property
    def n_waiting(self) -> int:
        """Requests that wait for their turn."""
        return self._jobs.qsize()

    @property
    def waiting_calls(self) -> frozenset[str]:
        """Ids of the calls whose results can be sent without the conversation before them."""
        return self._waiting_calls

    def submit(self, job: Job) -> None:
        """Queue a request.

        Raises:
            ApiError: the server ends, or too many wait.
        """
        with self._lock:
            if self._stopping.is_set():
                raise _shutting_down()
            if self._jobs.qsize() >= self._settings.max_queue:
                raise ApiError(
                    f"{self._jobs.qsize()} requests wait already. Try again later.",
                    503,
                    code="queue_full",
                )
            self._jobs.put(job)

    def stop(self) -> None:
        """Give up the running request and those that wait, save what is in memory, and end."""
        with self._lock:
            if self._stopping.is_set():
                return
            self._stopping.set()
            if self._running is not None:
                self._running.outbox.cancel.set()
            self._jobs.put(None)

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread's end; True when it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # --- the engine's thread ------------------------------------------------------------------

    def _run(self) -> None:
        try:
            answerer, reuse = self._open()
        except BaseException as error:
            self._problem = error
            self._ready.set()
            return
        self._ready.set()
        while (job := self._jobs.get()) is not None:
            with self._lock:
                self._running = job
                if self._stopping.is_set():
                    job.outbox.cancel.set()
            self.busy = True
            try:
                self._answer(answerer, reuse, job)
            finally:
                self.busy = False
                with self._lock:
                    self._running = None
                self._waiting_calls = reuse.waiting_calls()
            del job  # its outbox must not live until the next request
        with contextlib.suppress(queue.Empty):
            while (late := self._jobs.get_nowait()) is not None:
                late.outbox.put(Failed(_shutting_down()))
        try:
            reuse.keep_all(Reason.SHUTDOWN)
        except Exception as error:
            _log.warning("the conversation in memory was not saved: %s", explain(error))
        if self.disk is not None:
            self.disk.close()
        if self._trace is not None:
            self._trace.close()
        self.engine.close()

    def _open(self) -> tuple[Answerer, Reuse]:
        settings = self._settings
        engine = self._open_engine(lambda done, total: None, self._stopping)
        self.engine = engine
        self.renderer = PromptRenderer(engine.chat, engine.tokenizer)
        if settings.kv_folder is not None:
            self.disk = DiskCache(
                settings.kv_folder,
                engine.info,
                _model_id(engine),
                self.replay,
                settings.kv_space_mb << 20,
            )
            self.disk.load_calls()
        policy = settings.policy
        reuse = Reuse(engine, self.renderer, policy, self.disk, settings.live_sessions)
        next_continued = policy.next_continued if self.disk is not None else lambda n: 0
        read = self._metrics.read_tokens
        return Answerer(engine, reuse, self.replay, next_continued, read), reuse

    def _answer(self, answerer: Answerer, reuse: Reuse, job: Job) -> None:
        started = time.monotonic()
        self._metrics.waited(started - job.queued_at)
        finish = ready = usage = None
        try:
            finish, ready, usage = answerer.answer(job)
        except ApiError as error:
            job.outbox.put(Failed(error))
        except Exception as error:  # the worker must survive whatever happens
            reuse.drop_used(is_out_of_memory=is_out_of_memory(error))
            job.outbox.put(Failed(_failure(error)))
        if self._stopping.is_set() and job.outbox.cancel.is_set():
            job.outbox.put(Failed(_shutting_down()))
        name = str(finish or "none")
        self._metrics.answered(name, ready, usage, time.monotonic() - started)
        if self._trace is not None:
            self._trace.note(job, name, ready, usage, self.engine)


def _model_id(engine: Engine) -> int:
    """Return header byte 7 of the checkpoints of a model."""
    codec = codec_for_family(engine.info.family)
    if len(codec.model_ids) == 1:
        return codec.model_ids[0]
    try:
        return codec.header_ids(engine.new_session().state())[0]
    except (CheckpointError, EngineError, ValueError):
        return codec.model_ids[0]


def _failure(error: Exception) -> ApiError:
    """Log what failed, and return what the client is told."""
    if isinstance(error, EngineError):
        _log.warning("a request failed: %s", explain(error))
        return ApiError(explain(error), 500, code="engine_error")
    if is_out_of_memory(error):
        _log.warning("a request failed, no memory is left: %s", explain(error))
        return ApiError(
            "The device has no memory left for this request. Send it again, or start the server "
            "with a smaller --ctx or fewer --live-sessions.",
            500,
            code="out_of_memory",
        )
    _log.error("a request failed", exc_info=error)
    return ApiError("The engine failed; see the server's log.", 500)


def _shutting_down() -> ApiError:
    return ApiError("The server is shutting down.", 503, code="shutting_down")
