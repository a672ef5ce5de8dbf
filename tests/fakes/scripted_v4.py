"""The tiny random DeepSeek V4 of ``tests/fixtures/v4_tiny``, whose replies a script chooses.

Everything is computed: the network, its cache, the logits. Only then the next token of the script
is made the most probable one by far. Random weights say nothing, least of all a tool call.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np

from engine.engine import Engine
from engine.session import DEFAULT_CHUNK_TOKENS, Session
from engine.tokenizer import Tokenizer

FILE = Path(__file__).parents[1] / "fixtures" / "v4_tiny" / "tiny-v4-q.gguf"
_FAR = 60.0  # above every other logit: their exponentials vanish beside it


class Script:
    """What follows on what: a user turn that begins with a key of ``answers`` gets that reply."""

    def __init__(self, tokenizer: Tokenizer, answers: Mapping[str, str]) -> None:
        self._answers = {
            tuple(tokenizer.encode(start)): tokenizer.encode_rendered(reply)
            for start, reply in answers.items()
        }
        self._user = tokenizer.control_id("<｜User｜>")
        self._assistant = tokenizer.control_id("<｜Assistant｜>")
        self._stop = tokenizer.control_id("<｜end▁of▁sentence｜>")

    def next(self, ids: list[int]) -> int | None:
        """Return the token that follows, None where no reply is being written."""
        if self._assistant not in ids:
            return None
        opened = len(ids) - 1 - ids[::-1].index(self._assistant)
        asked = opened - 1 - ids[:opened][::-1].index(self._user) + 1
        said = len(ids) - opened - 2  # behind the mark that opens or closes the thinking
        for start, reply in self._answers.items():
            if said >= 0 and tuple(ids[asked : asked + len(start)]) == start:
                return reply[said] if said < len(reply) else self._stop
        return None


class ScriptedSession(Session):
    """A session whose logits prefer what the script has."""

    script: Script

    @property
    def logits(self) -> np.ndarray:
        logits = super().logits
        following = self.script.next(self._tokens)
        if following is None:
            return logits
        preferring = logits.copy()
        preferring[following] = logits.max() + _FAR
        return preferring


class ScriptedV4Engine(Engine):
    """An engine whose sessions follow a script."""

    script: Script

    @classmethod
    def of(cls, answers: Mapping[str, str], ctx: int) -> Self:
        engine = cls.open(FILE, device="cpu", ctx=ctx)
        engine.script = Script(engine.tokenizer, answers)
        return engine

    def new_session(self) -> ScriptedSession:
        session = ScriptedSession(
            self._loaded(),
            self.tokenizer,
            self.chat.stop_ids | frozenset(self.tokenizer.eos_ids),
            self.info.ctx,
            self.info.fingerprint,
            DEFAULT_CHUNK_TOKENS,
        )
        session.script = self.script
        return session
