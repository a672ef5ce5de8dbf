"""One prompt without a screen: for scripts, pipes and other programs.

``text``
    What the model says goes to standard output as it comes, what a person may want to know
    besides (tools, notices) to standard error.
``json``
    One object at the end::

        {"type": "result", "outcome": "done", "result": "<text after the last tool call>",
         "session_id": "", "usage": {"reused_tokens": 0, "prefilled_tokens": 0,
         "generated_tokens": 0, "context_tokens": 0, "context_size": 0}, "model": "",
         "tool_calls": [{"name": "", "arguments": {}, "ok": true}], "duration_s": 0.0,
         "error": "<only when there is one>"}

``stream-json``
    One object a line for every event of ``ds4agent.events``: its fields, and ``type`` with the
    event's name in snake case (``ready``, ``turn_started``, ``text_delta``, ``tool_finished``,
    ...). The last line is the object of ``json``. ``ds4-agent config events`` prints the schema.

Exit codes: 0 done, 1 error or a limit, 3 refused, 130 interrupted.
"""

import dataclasses
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from ds4agent.events import (
    Closed,
    Compacted,
    Event,
    Notice,
    Outcome,
    Phase,
    PhaseChanged,
    Ready,
    TextDelta,
    ToolCallReady,
    ToolFinished,
    TurnEnded,
    TurnStarted,
    Usage,
)
from ds4agent.requests import Quit, Submit

EXIT_CODES = {
    Outcome.DONE: 0,
    Outcome.ERROR: 1,
    Outcome.LIMIT: 1,
    Outcome.REFUSED: 3,
    Outcome.INTERRUPTED: 130,
}
USAGE_FIELDS = (
    "reused_tokens",
    "prefilled_tokens",
    "generated_tokens",
    "context_tokens",
    "context_size",
)


class Worker(Protocol):
    """What is needed of ``agent.worker.AgentWorker``."""

    events: Any  # queue.Queue[Event]

    def start(self) -> None: ...

    def send(self, command: Any) -> None: ...

    def interrupt(self) -> None: ...

    def join(self, timeout: float | None = None) -> bool: ...


def run_headless(worker: Worker, prompt: str, output_format: str, out: TextIO, err: TextIO) -> int:
    """Run one prompt to its end, save, and return the exit code.

    Args:
        worker: not yet started.
        prompt: what to do.
        output_format: one of ``run_settings.FORMATS``.
        out: answers and JSON.
        err: everything else.
    """
    run = _Run(worker, prompt, output_format, out, err)
    with _signals(run.interrupt):
        worker.start()
        return run.until_closed()


class _Run:
    """Follows the events of one run."""

    def __init__(
        self, worker: Worker, prompt: str, output_format: str, out: TextIO, err: TextIO
    ) -> None:
        self._worker = worker
        self._prompt = prompt
        self._format = output_format
        self._out = out
        self._err = err
        self._start_s = time.monotonic()
        self._is_ready = threading.Event()
        self._was_interrupted = False
        self._is_broken = False  # the output goes nowhere any more
        self._model = ""
        self._text = ""  # since the last tool call
        self._calls: list[dict[str, Any]] = []
        self._arguments: dict[str, dict[str, Any]] = {}
        self._end: TurnEnded | None = None
        self._failure = ""
        self._warnings: dict[str, None] = {}  # in order, each once
        self._session_id = ""
        self._last_written = ""  # character

    def interrupt(self) -> None:
        """Stop what runs; before there is a turn, stop loading."""
        self._was_interrupted = True
        if self._is_ready.is_set():
            self._worker.interrupt()
        else:
            self._worker.send(Quit())

    def until_closed(self) -> int:
        """Follow the worker to its end and return the exit code."""
        while True:
            event = self._worker.events.get()
            self._follow(event)
            self._show(event)
            if isinstance(event, Closed):
                break
        self._worker.join(10.0)
        self._show_result()
        return 1 if self._is_broken else EXIT_CODES[self._outcome()]

    def _follow(self, event: Event) -> None:
        match event:
            case Ready():
                self._model = event.model
                self._session_id = event.session_id
                self._is_ready.set()
                # Only now: a message to a model that could not be loaded would be a second error.
                self._worker.send(Quit() if self._was_interrupted else Submit(self._prompt))
            case TurnStarted() if self._was_interrupted:
                self._worker.interrupt()  # the interrupt came just before there was a turn
            case PhaseChanged(Phase.GENERATING):
                self._text = ""  # another answer begins
            case TextDelta(text):
                self._text += text
            case ToolCallReady():
                self._arguments[event.call_id] = event.arguments
            case ToolFinished():
                self._text = ""
                self._calls.append(
                    {
                        "name": event.name,
                        "arguments": self._arguments.get(event.call_id, {}),
                        "ok": event.ok,
                    }
                )
            case Notice(text, level) if level != "info":
                self._warnings[text] = None
            case PhaseChanged(Phase.FAILED, detail):
                self._failure = detail
                self._worker.send(Quit())
            case TurnEnded():
                self._end = event
                self._worker.send(Quit())
            case Closed(resume_id):
                self._session_id = resume_id

    def _outcome(self) -> Outcome:
        if self._end is not None:
            return self._end.outcome
        return Outcome.INTERRUPTED if self._was_interrupted else Outcome.ERROR

    # --- output -------------------------------------------------------------------------------

    def _show(self, event: Event) -> None:
        if self._format == "stream-json":
            self._write(self._out, json.dumps(event_object(event), ensure_ascii=False) + "\n")
        elif self._format == "text" and isinstance(event, TextDelta):
            self._write(self._out, event.text)
        match event:
            case PhaseChanged(Phase.GENERATING):
                self._end_line()
            case Notice(text):
                self._tell(text)
            case ToolFinished() if self._format == "text":
                self._end_line()
                self._tell(f"[{'ok' if event.ok else 'failed'}] {event.title}")
            case Compacted():
                self._tell(f"compacted: {event.tokens_before} tokens are now {event.tokens_after}")
            case TurnEnded(error=error):
                self._end_line()
                if error and not self._is_broken:
                    self._tell(error)

    def _show_result(self) -> None:
        if self._format != "text":
            self._write(self._out, json.dumps(self._result(), ensure_ascii=False) + "\n")

    def _result(self) -> dict[str, Any]:
        usage = self._end.usage if self._end is not None else Usage()
        result: dict[str, Any] = {
            "type": "result",
            "outcome": self._outcome().value,
            "result": self._text,
            "session_id": self._session_id,
            "usage": {name: getattr(usage, name) for name in USAGE_FIELDS},
            "model": self._model,
            "tool_calls": self._calls,
            "duration_s": round(time.monotonic() - self._start_s, 3),
        }
        error = self._end.error if self._end is not None else self._failure
        if error:
            result["error"] = error
        if self._warnings:
            result["warnings"] = list(self._warnings)
        return result

    def _end_line(self) -> None:
        if self._format == "text" and self._last_written not in ("", "\n"):
            self._write(self._out, "\n")

    def _tell(self, text: str) -> None:
        self._write(self._err, f"ds4-agent: {text}\n")

    def _write(self, stream: TextIO, text: str) -> None:
        if self._is_broken and stream is self._out:
            return
        try:
            stream.write(text)
            stream.flush()
        except OSError as error:
            if stream is not self._out:
                return
            # The reader is gone (`| head`), or the disk is full. What was said so far is saved;
            # the rest is pointless.
            self._is_broken = True
            _discard(stream)
            self._worker.send(Quit())
            if not isinstance(error, BrokenPipeError):
                self._tell(f"cannot write the output: {error.strerror}")
            return
        if stream is self._out and text:
            self._last_written = text[-1]


def event_object(event: Event) -> dict[str, Any]:
    """Return an event as JSON-ready data: ``type`` in snake case, then its fields."""
    return {"type": event_name(type(event)), **dataclasses.asdict(event)}


def event_name(kind: type) -> str:
    """Return what ``type`` says of an event: ``tool_finished`` for ``ToolFinished``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def _discard(stream: TextIO) -> None:
    """Send what is still buffered nowhere, so that the exit does not fail on it again."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


@contextmanager
def _signals(interrupt: Callable[[], None]) -> Iterator[None]:
    """Turn Ctrl+C, a kill and the end of the terminal into an interrupt, so that all is saved.

    In another thread than the main one there are no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it stays ignored
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: interrupt()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
