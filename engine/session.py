"""One live conversation state: the tokens a model has consumed, and what it keeps of them.

The tokens are the truth. Everything here keeps one promise: ``tokens``, the KV cache and the
logits always belong together, whatever is interrupted when. A forward pass that fails is taken
back; logits that no longer belong to the last token are computed again when they are needed.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from threading import Event
from typing import Self

import numpy as np

from engine.errors import ContextFull, RewindError, StateMismatch
from engine.families.base import Model
from engine.grammar import GrammarState
from engine.sampler import Sampler
from engine.sampling_options import SamplingOptions
from engine.state import SessionState, StateDelta, SyncReport, Token
from engine.tokenizer import Tokenizer

SyncProgress = Callable[[int, int], None]  # tokens done, tokens in all

_IMPOSSIBLE = np.float32(-1e30)  # far below any logit, and finite: the sampler refuses infinity
DEFAULT_CHUNK_TOKENS = 256  # of prefill: above it, a CPU gains nothing and reacts later


class Session:
    """A conversation with one model. Used by one thread at a time.

    Attributes:
        ctx: Most tokens that the state can hold.
        tokenizer: The vocabulary of the model.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        stop_ids: Collection[int],
        ctx: int,
        fingerprint: str,
        chunk_tokens: int = DEFAULT_CHUNK_TOKENS,
    ) -> None:
        """``chunk_tokens``: positions of a prompt at a time, where the model names no number."""
        self.ctx = ctx
        self._model = model
        self.tokenizer = tokenizer
        self._stop_ids = frozenset(stop_ids)
        self._fingerprint = fingerprint
        asked = getattr(model, "chunk_tokens", None)
        self._chunk_tokens = chunk_tokens if asked is None else asked(ctx)
        self._cache = model.new_cache(ctx)
        self._tokens: list[int] = []
        self._logits: np.ndarray | None = np.zeros(0, np.float32)  # None: compute again
        self._pending: int | None = None  # a token that was yielded and is not consumed yet
        self._n_kept = 0  # see ``n_kept``

    @property
    def tokens(self) -> tuple[int, ...]:
        """What the state has consumed. Consumes the token that a generation yielded last."""
        self._consume_pending()
        return tuple(self._tokens)

    @property
    def logits(self) -> np.ndarray:
        """Logits of the next token, [V] float32; shape [0] when there are no tokens."""
        self._consume_pending()
        if self._logits is None:
            self._truncate(len(self._tokens) - 1)
            self._pending = self._tokens.pop()  # pending, so that a failure doesn't lose it
            self._consume_pending()
        return self._logits

    @property
    def n_kept(self) -> int:
        """Tokens at the front whose part of the state is as it was at the last ``mark``."""
        return self._n_kept

    def mark(self) -> None:
        """Remember this moment: everything was written somewhere. See ``n_kept``."""
        self._n_kept = len(self.tokens)

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """How many of the first tokens are those of the state."""
        self._consume_pending()
        n = 0
        for ours, theirs in zip(self._tokens, tokens, strict=False):
            if ours != theirs:
                break
            n += 1
        return n

    def sync(
        self,
        tokens: Sequence[int],
        progress: SyncProgress | None = None,
        cancel: Event | None = None,
    ) -> SyncReport:
        """Make the state equal ``tokens``: keep the common prefix, prefill the rest in chunks.

        Args:
            tokens: The whole conversation.
            progress: Called after each chunk with the tokens prefilled and to prefill.
            cancel: Looked at before each chunk. When set, the chunks that are done stay.

        Raises:
            ContextFull: there are more tokens than the context holds. Nothing has changed.
            ValueError: a token id does not exist in this vocabulary.
        """
        started = time.perf_counter()
        tokens = [int(token) for token in tokens]
        if not self._are_known(tokens):
            raise ValueError(f"a token id is outside of 0 to {self._model.n_vocab - 1}")
        self._check_room(len(tokens))
        reused = self.common_prefix(tokens)
        to_do = len(tokens) - reused
        if to_do and cancel is not None and cancel.is_set():
            return SyncReport(reused, 0, time.perf_counter() - started, cancelled=True)
        if reused < len(self._tokens):
            try:
                self.rewind(reused)
            except RewindError:  # a cache that forgets can always start again
                self.rewind(0)
                reused = 0
        return self._append(tokens[reused:], reused, started, progress, cancel)

    def extend(
        self,
        tokens: Sequence[int],
        progress: SyncProgress | None = None,
        cancel: Event | None = None,
    ) -> SyncReport:
        """Append tokens; see ``sync``. The time does not depend on how many there are already."""
        started = time.perf_counter()
        tokens = [int(token) for token in tokens]
        if not self._are_known(tokens):
            raise ValueError(f"a token id is outside of 0 to {self._model.n_vocab - 1}")
        self._consume_pending()
        self._check_room(len(self._tokens) + len(tokens))
        return self._append(tokens, len(self._tokens), started, progress, cancel)

    def _append(
        self,
        tokens: Sequence[int],
        reused: int,
        started: float,
        progress: SyncProgress | None,
        cancel: Event | None,
    ) -> SyncReport:
        done = 0
        while done < len(tokens):
            if cancel is not None and cancel.is_set():
                break
            chunk = tokens[done : done + self._chunk_tokens]
            self._forward(chunk)
            done += len(chunk)
            if progress is not None:
                progress(done, len(tokens))
        seconds = time.perf_counter() - started
        return SyncReport(reused, done, seconds, cancelled=done < len(tokens))

    def rewind(self, n_tokens: int) -> None:
        """Forget every token after the first ``n_tokens``.

        Raises:
            RewindError: there are not so many, or the cache no longer holds that position.
        """
        self._consume_pending()
        if not 0 <= n_tokens <= len(self._tokens):
            raise RewindError(
                f"cannot rewind to {n_tokens} of {len(self._tokens)} tokens",
                "Name a position of this conversation.",
            )
        if n_tokens == len(self._tokens):
            return
        self._truncate(n_tokens)
        del self._tokens[n_tokens:]
        self._logits = None if n_tokens else np.zeros(0, np.float32)

    def generate(
        self,
        options: SamplingOptions,
        max_tokens: int,
        cancel: Event | None = None,
        not_first: Sequence[int] = (),
        *,
        grammar: GrammarState | None = None,
        is_greedy: Callable[[], bool] | None = None,
    ) -> "Generation":
        """Sample tokens, one at a time; see ``Generation``.

        Args:
            options: How to sample.
            max_tokens: Most tokens to sample.
            cancel: Looked at before each token.
            not_first: Ids that the first token can't be: they decide how an answer begins.
            grammar: What the answer must be; it follows the sampled tokens, so that a second
                generation with it goes on where the first one ended.
            is_greedy: Asked before each token whether the likeliest one is to be taken, when
                the caller has seen all tokens before it.

        Raises:
            ValueError: the state is empty: there is nothing to continue.
        """
        if not self.tokens:
            raise ValueError("generate needs at least one token in the state")
        return Generation(self, Sampler(options), max_tokens, cancel, not_first, grammar, is_greedy)

    def state(self) -> SessionState:
        """Copy everything that is needed to go on elsewhere."""
        logits = self.logits.copy()
        return SessionState(
            family=self._model.family,
            fingerprint=self._fingerprint,
            ctx=self.ctx,
            tokens=tuple(self._tokens),
            logits=logits,
            arrays=self._cache.arrays(),
            expert_bits=self._model.expert_bits,
        )

    def delta(self, kept: int | None = None) -> StateDelta:
        """Copy what the state has beyond its first ``kept`` tokens; ``n_kept`` by default.

        A state that was copied when there were more than ``kept`` tokens gives, with this, the
        present one only if ``kept`` is at most ``n_kept``: rows that were computed again need
        not be equal to the last bit. So the logits come first: after going back, they cost the
        last token.

        Raises:
            ValueError: the state has fewer tokens.
        """
        logits = self.logits.copy()
        kept = self._n_kept if kept is None else kept
        if not 0 <= kept <= len(self._tokens):
            raise ValueError(f"{kept} tokens are to be kept, the state has {len(self._tokens)}")
        since = self._cache.arrays_since(kept)
        return StateDelta(
            family=self._model.family,
            fingerprint=self._fingerprint,
            ctx=self.ctx,
            kept=kept,
            tokens=tuple(self._tokens[kept:]),
            logits=logits,
            arrays={name: rows for name, (_, rows) in since.items()},
            first_rows={name: first for name, (first, _) in since.items()},
        )

    def load(self, state: SessionState, *, consume: bool = False, n_kept: int = 0) -> None:
        """Replace the state by a saved one, bit by bit.

        Args:
            state: The saved one.
            consume: Take its arrays away one by one, so that never two whole copies are in memory.
            n_kept: Tokens at the front whose part is known to be as it was at the last ``mark``,
                because the state was saved then or before, and those tokens were kept since.

        Raises:
            StateMismatch: it was saved with another model or does not fit. Nothing has changed.
        """
        n_tokens = len(state.tokens)
        ours, theirs = self._fingerprint, state.fingerprint
        if (self._model.family, ours) != (state.family, theirs):
            raise StateMismatch(
                f"the state was saved with another model ({state.family} {theirs[:8]}, "
                f"this is {self._model.family} {ours[:8]})",
                "Open the model that the session was saved with.",
            )
        if n_tokens > self.ctx:
            raise StateMismatch(
                f"the saved state has {n_tokens} tokens, this context has {self.ctx}",
                f"Open the model with --ctx {n_tokens} or more.",
            )
        if not self._are_known(state.tokens):
            raise StateMismatch(
                f"the saved state has token ids outside of 0 to {self._model.n_vocab - 1}",
                "Start a new session.",
            )
        n_logits = self._model.n_vocab if n_tokens else 0
        if state.logits.shape != (n_logits,) or state.logits.dtype != np.float32:
            raise StateMismatch(
                f"the saved logits are {state.logits.dtype} {list(state.logits.shape)}, "
                f"expected float32 [{n_logits}]",
                "Start a new session.",
            )
        self._cache.load(state.arrays, n_tokens, consume=consume)
        self._pending = None
        self._tokens = list(state.tokens)
        self._logits = state.logits.copy()
        self._n_kept = min(n_kept, n_tokens)

    def _truncate(self, n_tokens: int) -> None:
        self._cache.truncate(n_tokens)
        self._n_kept = min(self._n_kept, n_tokens)

    def _check_room(self, n_tokens: int) -> None:
        if n_tokens > self.ctx:
            raise ContextFull(
                f"{n_tokens} tokens do not fit into the context of {self.ctx}",
                "Compact the conversation, start a new one, or open the model with more --ctx.",
            )

    def _are_known(self, tokens: Sequence[int]) -> bool:
        # A negative id would be a valid row of the embedding for NumPy, counted from the end.
        return not tokens or (min(tokens) >= 0 and max(tokens) < self._model.n_vocab)

    def _consume_pending(self) -> None:
        """Forward the token that was yielded last. It stays pending when that fails."""
        if self._pending is not None:
            self._forward([self._pending])
            self._pending = None

    def _forward(self, token_ids: Sequence[int]) -> None:
        """Consume tokens. On any failure, an interrupt included, they are all taken back."""
        n_before = len(self._tokens)
        ids = np.asarray(token_ids, np.int32)
        try:
            hidden = self._model.embed(ids)
            hidden = self._model.layers(0, self._model.n_layers, hidden, self._cache, ids)
            logits = self._model.head(hidden[-1:])[0]
            self._tokens.extend(token_ids)
            self._logits = logits
        except BaseException:
            del self._tokens[n_before:]
            self._truncate(n_before)
            self._logits = None if n_before else np.zeros(0, np.float32)
            raise


class Generation(Iterator[Token]):
    """Sampled tokens of one answer.

    A yielded token is consumed when the iterator goes on or is closed, or when the session is
    used in any other way. So every yielded token ends up in ``Session.tokens``, and no forward
    pass is spent on a token before it could be shown.

    Attributes:
        finish_reason: Why it ended: "stop" (an end-of-turn token), "length" (``max_tokens``),
            "context" (no room), "cancelled", or "closed"; "" while it runs.
    """

    def __init__(
        self,
        session: Session,
        sampler: Sampler,
        max_tokens: int,
        cancel: Event | None,
        not_first: Sequence[int],
        grammar: GrammarState | None,
        is_greedy: Callable[[], bool] | None,
    ) -> None:
        self.finish_reason = ""
        self._session = session
        self._sampler = sampler
        self._max_tokens = max_tokens
        self._recent_window = sampler.options.repeat_window
        self._cancel = cancel
        self._not_first = not_first
        self._grammar = grammar
        self._is_greedy = is_greedy
        self._n_yielded = 0
        self._stopped = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Token:
        if self.finish_reason:
            raise StopIteration
        session = self._session
        # Reading the logits consumes the token yielded last. The matrix may have more rows than
        # the vocabulary has tokens, for the sake of round sizes: those can't be sampled.
        logits = session.logits[: session.tokenizer.n_vocab]
        self.finish_reason = self._reason_to_end()
        if self.finish_reason:
            raise StopIteration
        if self._not_first and not self._n_yielded:
            logits = logits.copy()
            logits[list(self._not_first)] = _IMPOSSIBLE
        recent = session._tokens[-self._recent_window :] if self._recent_window else []
        token_id, logprob = self._sampler.sample(
            logits,
            len(session._tokens),
            recent,
            greedy=self._is_greedy is not None and self._is_greedy(),
            allowed=self._grammar.allowed() if self._grammar is not None else None,
        )
        if self._grammar is not None:
            self._grammar.accept(token_id)  # the next mask is computed during the forward pass
        session._pending = token_id
        self._n_yielded += 1
        self._stopped = token_id in session._stop_ids
        return Token(token_id, session.tokenizer.token_bytes(token_id), logprob, self._stopped)

    def close(self) -> None:
        """End it, and consume the token yielded last."""
        self._session._consume_pending()
        self.finish_reason = self.finish_reason or "closed"

    def _reason_to_end(self) -> str:
        if self._stopped:
            return "stop"
        if self._cancel is not None and self._cancel.is_set():
            return "cancelled"
        if self._n_yielded >= self._max_tokens:
            return "length"
        if len(self._session._tokens) >= self._session.ctx:
            return "context"
        return ""
