"""Which saved state covers most of a prompt: the longest text that the prompt begins with.

A server renders a request to bytes and asks here. The texts are compared, never tokens: the
tokens of the state are then continued with what the rest of the bytes gives.

Every file is read once, up to its text, and remembered with its size and time. A lookup then
hashes the prompt once, up to each length that occurs, and never opens a file that cannot match.
"""

import contextlib
import dataclasses
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from engine.state import SessionState
from sessions import checkpoint, folder, session_file, side_file
from sessions.errors import CheckpointError
from sessions.kvc import FLAG_TITLE
from sessions.safe_file import plain_errors

MIN_TOKENS = 512  # default of the C program: less is faster read than loaded


@dataclass(frozen=True, slots=True)
class Match:
    """A file whose text is the beginning of a prompt."""

    path: Path
    id: str
    text_bytes: int
    tokens: int
    is_session: bool  # a conversation of the agent; a server must not write over it


@dataclass(frozen=True, slots=True)
class _Known:
    stamp: tuple[int, int, int]  # inode, bytes, time in ns
    match: Match
    text_sha1: bytes
    model_id: int
    quant_bits: int
    ctx: int
    fingerprint: str


class PrefixIndex:
    """The texts of one folder. Not for two threads at a time."""

    def __init__(self, path: Path) -> None:
        self._folder = path
        self._known: dict[Path, _Known | None] = {}  # None: not readable, until it changes
        self._stamps: dict[Path, tuple[int, int, int]] = {}

    def longest(
        self,
        prompt: bytes,
        *,
        fingerprint: str,
        model_id: int,
        ctx: int,
        min_tokens: int = MIN_TOKENS,
        quant_bits: int = 0,
    ) -> list[Match]:
        """Return the files that ``prompt`` begins with, the longest first.

        All of them, because the first may turn out to be damaged when it is loaded: then the next
        one serves.

        Args:
            prompt: rendered bytes.
            fingerprint: of the weights; a file that says it has others is passed over.
            model_id: header byte 7.
            ctx: of the session that is to load it; files saved with a longer one do not fit.
            min_tokens: shorter ones are not worth it.
            quant_bits: 2 or 4 to insist on the class of the experts, 0 for either.
        """
        self._refresh()
        fitting = [
            known
            for known in self._known.values()
            if known is not None
            and known.match.text_bytes <= len(prompt)
            and known.match.tokens >= min_tokens
            and (known.model_id, known.fingerprint) in ((model_id, ""), (model_id, fingerprint))
            and known.ctx <= ctx
            and quant_bits in (0, known.quant_bits)
        ]
        digests = digests_at(prompt, {known.match.text_bytes for known in fitting})
        found = [k.match for k in fitting if digests[k.match.text_bytes] == k.text_sha1]
        return sorted(found, key=lambda m: (m.text_bytes, m.tokens), reverse=True)

    def _refresh(self) -> None:
        paths = folder.session_paths(self._folder)
        for path in self._known.keys() - set(paths.values()):
            del self._known[path], self._stamps[path]
        for identifier, path in paths.items():
            try:
                stat = os.stat(path)
            except OSError:
                continue  # deleted meanwhile: the next lookup forgets it
            stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if self._stamps.get(path) != stamp:
                self._stamps[path] = stamp
                self._known[path] = None
                with contextlib.suppress(CheckpointError, OSError):
                    self._known[path] = _read(identifier, path, stamp)


def load(match: Match) -> tuple[SessionState, bytes]:
    """Read the state of a match and its text, and verify both.

    The journal of a session is left alone: the text that was compared is that of the checkpoint.

    Raises:
        CheckpointError: it is damaged, or was removed or replaced meanwhile: take the next match.
    """
    with plain_errors("load the state", match.path), checkpoint.opened(match.path) as opened:
        text, stamp = opened.text(), session_file.stamp(opened)
        if len(text) != match.text_bytes or opened.header.tokens != match.tokens:
            raise CheckpointError("the checkpoint was replaced meanwhile", "Look again.")
        side_file.check(match.path, stamp, text)
        facts = side_file.facts_of(match.path, stamp)
        state = opened.state(text, sha256=facts.state_sha256)
        fingerprint = state.fingerprint or facts.fingerprint
        return dataclasses.replace(state, fingerprint=fingerprint), text


def _read(identifier: str, path: Path, stamp: tuple[int, int, int]) -> _Known | None:
    with checkpoint.opened(path) as opened:
        if opened.is_stripped:
            return None
        text, header, summary = opened.text(), opened.header, opened.summary()
        facts = side_file.facts_of(
            path, side_file.stamp(opened.envelope.file_bytes, summary.digest)
        )
        is_session = bool(header.flags & FLAG_TITLE)
        return _Known(
            stamp,
            Match(path, identifier, len(text), header.tokens, is_session),
            hashlib.sha1(text).digest(),
            header.model_id,
            header.quant_bits,
            header.ctx,
            summary.fingerprint or facts.fingerprint,
        )


def digests_at(prompt: bytes, lengths: set[int]) -> dict[int, bytes]:
    """Hash every beginning of ``prompt`` that has one of these lengths, reading it once (SHA-1)."""
    digests, running, at = {}, hashlib.sha1(), 0
    view = memoryview(prompt)
    for length in sorted(lengths):
        running.update(view[at:length])
        digests[length] = running.copy().digest()
        at = length
    return digests
