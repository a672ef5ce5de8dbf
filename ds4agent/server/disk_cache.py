"""Conversations of the clients on the disk, found by the longest text that a prompt begins with.

The files are those of ``sessions`` without a title, in a folder of their own: a cache, which may
be deleted at any time. They are written by a thread of their own, so that the model goes on. The
sampled tool calls of a conversation lie behind its state (KTM) and are read at the start.
"""

import contextlib
import dataclasses
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Queue

from ds4agent.errors import explain
from engine.chat.replay import CallReplay
from engine.state import ModelInfo, SessionState
from sessions import budget, checkpoint_files, folder, kvc, prefix_lookup
from sessions.errors import CheckpointError
from sessions.identity import text_id
from sessions.record import SessionMeta
from sessions.safe_file import open_regular, plain_errors
from sessions.store import SessionStore

_log = logging.getLogger(__name__)
_HEADROOM = 100  # one part in so many is left free, as the C program does


class DiskCache:
    """The checkpoints of one model. ``find``, ``load`` and ``save`` belong to the engine's thread.

    Attributes:
        n_saved: Files written, by reason.
        n_bytes: Bytes of all files, as of the last write.
    """

    def __init__(
        self,
        path: Path,
        info: ModelInfo,
        model_id: int,
        replay: CallReplay,
        budget_bytes: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.n_saved: dict[str, int] = {}
        self.n_bytes = 0
        self._path = path
        self._info = info
        self._model_id = model_id
        self._replay = replay
        self._budget = budget_bytes
        self._clock = clock
        self._index = prefix_lookup.PrefixIndex(path)
        self._store = SessionStore(path)
        self._maps_seen: set[tuple[str, int, int]] = set()
        self._maps_lock = threading.Lock()
        # One copy of a state at a time: it is as large as what the model keeps of a conversation.
        self._room = threading.Semaphore(1)
        self._waiting: list[bytes] = []  # texts that are not written yet
        self._to_write: Queue[tuple[SessionState, bytes, kvc.Reason] | None] = Queue()
        self._has_warned = False
        self._writer = threading.Thread(target=self._write_all, name="ds4-kv-writer", daemon=True)
        self._writer.start()

    def find(self, text: bytes, min_tokens: int) -> list[prefix_lookup.Match]:
        """Return the checkpoints that a prompt begins with, longest first."""
        if any(text.startswith(waiting) for waiting in tuple(self._waiting)):
            self.flush()
        return self._matches(text, min_tokens)

    def _matches(self, text: bytes, min_tokens: int) -> list[prefix_lookup.Match]:
        try:
            return self._index.longest(
                text,
                fingerprint=self._info.fingerprint,
                model_id=self._model_id,
                ctx=self._info.ctx,
                min_tokens=min_tokens,
            )
        except (CheckpointError, OSError) as error:
            _log.warning("the folder of checkpoints can't be read: %s", error)
            return []

    def load(self, match: prefix_lookup.Match) -> tuple[SessionState, bytes] | None:
        """Read a checkpoint and its text; None where it is damaged or gone."""
        try:
            state, text = prefix_lookup.load(match)
        except CheckpointError as error:
            _log.warning("a checkpoint is passed over: %s", error)
            return None
        self._touch(match.path)
        return state, text

    def save(self, copy: Callable[[], SessionState], text: bytes, reason: kvc.Reason) -> None:
        """Write a checkpoint soon, unless it is there. Waits while another one is written.

        Args:
            copy: Called for the state when there is room for it.
            text: Of its tokens, or what a client sees of it.
            reason: Kept in the header.
        """
        if text in self._waiting or self._is_saved(text):
            return
        self._room.acquire()
        try:
            state = copy()
        except Exception as error:  # no room for a copy: the answer needs none
            self._room.release()
            self._warn(error)
            return
        self._waiting.append(text)
        self._to_write.put((state, text, reason))

    def _is_saved(self, text: bytes) -> bool:
        """Whether the checkpoint of a text is there, one that this model can load. The file of
        another model, or of a longer context, is written over."""
        return any(match.text_bytes == len(text) for match in self._matches(text, 0))

    def load_calls(self) -> None:
        """Read the sampled calls behind the checkpoints that were not read before."""
        with self._maps_lock:
            for path in folder.session_paths(self._path).values():
                with contextlib.suppress(CheckpointError, OSError):
                    stat = os.stat(path)
                    seen = (path.name, stat.st_ino, stat.st_size)
                    if seen in self._maps_seen:
                        continue
                    with open_regular(path) as file:
                        for call_id, block in kvc.read_tool_map(file, kvc.read_envelope(file)):
                            if self._replay.block([call_id]) is None:
                                self._replay.remember([call_id], block)
                    self._maps_seen.add(seen)

    def flush(self) -> None:
        """Wait until everything is written."""
        self._to_write.join()

    def close(self) -> None:
        """Write what waits, and end."""
        self._to_write.put(None)
        self._writer.join()

    def _write_all(self) -> None:
        while (item := self._to_write.get()) is not None:
            try:
                self._write(*item)
                self._has_warned = False
            except Exception as error:  # a cache that can't be written costs time, not an answer
                self._warn(error)
            finally:
                self._waiting.remove(item[1])
                del item
                self._room.release()
                self._to_write.task_done()
        self._to_write.task_done()

    def _warn(self, error: Exception) -> None:
        """Tell why a checkpoint was not saved: once, until one is saved again."""
        if not self._has_warned:
            _log.warning("checkpoints are not saved: %s", explain(error))
        self._has_warned = True

    def _write(self, state: SessionState, text: bytes, reason: kvc.Reason) -> None:
        path = folder.session_path(self._path, text_id(text))
        now = int(self._clock())
        with plain_errors("save a checkpoint", path):
            saved = checkpoint_files.write(
                path,
                text_id(text),
                state,
                text,
                meta=SessionMeta(model=self._info.name),
                reason=reason,
                created_at=now,
                last_used=now,
                tool_map=self._replay.entries(text),
                make_room=self._make_room,
            )
        self.n_saved[reason.name.lower()] = self.n_saved.get(reason.name.lower(), 0) + 1
        self.n_bytes += saved.n_bytes

    def _make_room(self, n_bytes: int) -> None:
        if n_bytes + -(-n_bytes // _HEADROOM) > self._budget:
            raise CheckpointError(
                f"one has {n_bytes} bytes, the whole folder may have {self._budget}",
                "Start the server with more --kv-disk-space-mb.",
            )
        plan = budget.plan(self._store, self._budget - n_bytes, self._clock())
        victims = [entry for entry in plan.victims if not entry.is_session]
        budget.carry_out(self._store, victims, lambda entry, why: _log.warning(why))
        self.n_bytes = plan.total_bytes - sum(entry.file_bytes for entry in victims)

    def _touch(self, path: Path) -> None:
        """Count a hit in the header of a file, which its score depends on."""
        with contextlib.suppress(OSError, CheckpointError), open(path, "r+b") as file:
            header = kvc.parse_header(file.read(kvc.HEADER_BYTES))
            used = dataclasses.replace(
                header, hits=min(header.hits + 1, 2**32 - 1), last_used=int(self._clock())
            )
            file.seek(0)
            file.write(used.pack())
