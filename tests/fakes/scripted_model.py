"""A model that says what a script tells it, under the real engine, session and chat format.

Its logits depend on nothing but the tokens consumed so far: the n-th assistant turn of a
conversation continues with the n-th reply. So a conversation that was saved and restored in
another process goes on where it stopped, as with real weights.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.chat.registry import chat_format_for
from engine.engine import Engine
from engine.errors import RewindError, StateMismatch
from engine.state import ModelInfo
from engine.tokenizer import Tokenizer

_NORMAL, _CONTROL = 1, 3  # token types of a GGUF vocabulary
_CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def byte_alphabet() -> list[str]:
    """The printable stand-ins of GPT-2's byte-level vocabulary, in byte order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in names)
    names.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return [names[byte] for byte in range(256)]


def byte_tokenizer(*more_controls: str) -> Tokenizer:
    """One token a byte, the control tokens of ChatML, and more of them."""
    controls = (*_CONTROL_TOKENS, *more_controls)
    tokens = [*byte_alphabet(), *controls]
    types = [_NORMAL] * 256 + [_CONTROL] * len(controls)
    return Tokenizer(tokens, [], types, pre="qwen2", eos_id=258)


class ScriptedCache:
    """The consumed token ids, kept as the rows of one key array (exact in float16 below 2048)."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    @property
    def n_tokens(self) -> int:
        return len(self.ids)

    def truncate(self, n_tokens: int) -> None:
        if n_tokens > len(self.ids):
            raise RewindError("cannot rewind forward")
        del self.ids[n_tokens:]

    def arrays(self) -> dict[str, np.ndarray]:
        rows = np.array(self.ids, np.float16).reshape(-1, 1, 1)
        return {"layers.0.k": rows, "layers.0.v": np.zeros_like(rows)}

    def arrays_since(self, kept: int) -> dict[str, tuple[int, np.ndarray]]:
        return {name: (kept, rows[kept:]) for name, rows in self.arrays().items()}

    def load(self, arrays: dict[str, np.ndarray], n_tokens: int, *, consume: bool = False) -> None:
        rows = arrays.get("layers.0.k")
        if rows is None or rows.shape != (n_tokens, 1, 1):
            raise StateMismatch("the saved state is not one of the scripted model")
        self.ids = [int(value) for value in rows[:, 0, 0]]


class ScriptedModel:
    """``engine.families.base.Model`` whose hidden state is the id of the next token."""

    family = "llama"
    n_layers = 1
    ctx_train = 1 << 20
    expert_bits = 0

    def __init__(
        self,
        tokenizer: Tokenizer,
        replies: Sequence[str],
        delay_s: float,
        answers: Mapping[str, str] | None = None,
        failures: Mapping[str, int] | None = None,
    ) -> None:
        self.n_vocab = tokenizer.n_vocab
        self.n_forwards = 0
        self.n_positions = 0
        # What a model samples may be control tokens, such as those around its thinking.
        self._replies = [tokenizer.encode_rendered(reply) for reply in replies]
        self._answers = {
            tuple(tokenizer.encode(start)): tokenizer.encode_rendered(reply)
            for start, reply in (answers or {}).items()
        }
        self._failures = {
            tuple(tokenizer.encode(start)): n_said for start, n_said in (failures or {}).items()
        }
        self._asking = [tokenizer.control_id("<|im_start|>"), *tokenizer.encode("user\n")]
        self._over = tokenizer.encode("(the script has no more replies)")
        self._opening = [tokenizer.control_id("<|im_start|>"), *tokenizer.encode("assistant\n")]
        self._stop = tokenizer.control_id("<|im_end|>")
        # What a model that can think is given where it is not to.
        thinks = tokenizer.has_control("<think>")
        empty = "<think>\n\n</think>\n\n"
        self._empty_thought = tokenizer.encode_rendered(empty) if thinks else []
        self._delay_s = delay_s

    def new_cache(self, ctx: int) -> ScriptedCache:
        return ScriptedCache()

    def embed(self, token_ids: np.ndarray) -> np.ndarray:
        return np.asarray(token_ids, np.float32)[:, None]

    def layers(
        self, first: int, last: int, hidden: np.ndarray, cache: ScriptedCache, token_ids: np.ndarray
    ) -> np.ndarray:
        if len(token_ids) == 1 and self._delay_s:
            time.sleep(self._delay_s)
        self.n_forwards += 1
        self.n_positions += len(token_ids)
        cache.ids.extend(int(token) for token in token_ids)
        following = np.zeros((len(token_ids), 1), np.float32)
        following[-1] = self._next(cache.ids)
        return following

    def head(self, hidden: np.ndarray) -> np.ndarray:
        logits = np.full((len(hidden), self.n_vocab), -1e4, np.float32)
        logits[np.arange(len(hidden)), hidden[:, 0].astype(int)] = 20.0
        return logits

    def close(self) -> None:
        """Nothing is kept."""

    def _next(self, ids: list[int]) -> int:
        width = len(self._opening)
        starts = [
            i + width
            for i, token in enumerate(ids)
            if token == self._opening[0] and ids[i : i + width] == self._opening
        ]
        if not starts:
            return self._stop
        n = len(starts) - 1
        reply = self._of_last_ask(ids, self._answers)
        if reply is None:
            reply = self._replies[n] if n < len(self._replies) else self._over
        said = len(ids) - starts[-1]
        width = len(self._empty_thought)
        if width and ids[starts[-1] : starts[-1] + width] == self._empty_thought:
            said -= width
        n_until_failure = self._of_last_ask(ids, self._failures)
        if n_until_failure is not None and said >= n_until_failure:
            raise RuntimeError("[malloc] Unable to allocate 17179869184 bytes.")
        return reply[said] if said < len(reply) else self._stop

    def _of_last_ask(self, ids: list[int], by_start: dict[tuple[int, ...], Any]) -> Any:
        """Return what is given for the beginning of the last user turn, or None."""
        if not by_start:
            return None
        width = len(self._asking)
        at = next(
            i + width for i in range(len(ids) - width, -1, -1) if ids[i : i + width] == self._asking
        )
        for start, given in by_start.items():
            if tuple(ids[at : at + len(start)]) == start:
                return given
        return None


def scripted_engine(
    replies: Sequence[str],
    ctx: int = 16384,
    delay_s: float = 0.0,
    n_params: int = 0,
    answers: Mapping[str, str] | None = None,
    controls: Sequence[str] = (),
    failures: Mapping[str, int] | None = None,
) -> Engine:
    """Open an engine whose n-th assistant turn is ``replies[n]``; ``delay_s`` for each token.

    A user turn that begins with a key of ``answers`` gets that reply instead.
    ``n_params`` is the size that the model claims: below 3 billion the agent helps it along.
    With a key of ``failures`` the device has no memory left once so many tokens of the reply were
    computed; with 0, while the prompt is read.
    ``controls`` are more control tokens; with ``<think>`` and ``</think>`` the model can think.
    """
    tokenizer = byte_tokenizer(*controls)
    model = ScriptedModel(tokenizer, replies, delay_s, answers, failures)
    info = ModelInfo(
        name="scripted",
        family="llama",
        architecture="qwen2",
        quant="F32",
        n_params=n_params,
        n_layers=1,
        n_vocab=tokenizer.n_vocab,
        ctx_train=model.ctx_train,
        ctx=ctx,
        path=Path("scripted.gguf"),
        file_bytes=0,
        fingerprint="5c" * 32,
        device="cpu",
    )
    return Engine(model, tokenizer, chat_format_for("qwen2", tokenizer, {}), info)
