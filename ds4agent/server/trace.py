"""What went into the model and what came out, for a person who wonders why: one JSON line each."""

import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

from ds4agent.server.api.output import Usage
from ds4agent.server.job import Job
from ds4agent.server.reuse import Ready
from engine.engine import Engine
from sessions.safe_file import FILE_MODE

_log = logging.getLogger(__name__)


class Trace:
    """A file that grows by one line with every request that was answered."""

    def __init__(self, path: Path) -> None:
        """Open it; it is readable by its owner only, for it holds whole conversations."""
        path.touch(FILE_MODE)
        self._file = path.open("ab", buffering=0)
        self._lock = threading.Lock()
        self._has_warned = False

    def note(
        self, job: Job, finish: str, ready: Ready | None, usage: Usage | None, engine: Engine
    ) -> None:
        """Write the line of a request.

        ``prompt`` is what it was rendered to, ``state`` what the model has seen in the end, its
        reply included; both with control tokens spelled out.
        """
        line: dict[str, Any] = {
            "time": time.time(),
            "api": job.request.api,
            "finish": finish,
            "prompt": None if job.prompt is None else _text(job.prompt.text),
        }
        if ready is not None:
            line |= {"source": ready.source, "tokens": ready.n_prompt, "cached": ready.n_cached}
            line["state"] = _text(engine.tokenizer.render(ready.live.session.tokens))
        if usage is not None:
            line |= {"sampled": usage.completion, "thinking": usage.thinking}
        data = json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        with self._lock:
            try:
                self._append(data)
                self._has_warned = False
            except OSError as error:  # a full disk costs the line, not the answer
                if not self._has_warned:
                    _log.warning("the trace lacks lines: %s", error)
                self._has_warned = True

    def close(self) -> None:
        """End it."""
        self._file.close()

    def _append(self, data: bytes) -> None:
        """Write a line, or nothing of it."""
        n_before = os.fstat(self._file.fileno()).st_size
        try:
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            self._file.truncate(n_before)
            raise


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
