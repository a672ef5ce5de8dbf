"""The conversation that is in the model's memory, and how much of a prompt it already is.

A prompt is compared by keys (``prompt_tokens``), so tokens that a model sampled differently from
how its text would be read again stay as they are. Beyond that, each reply is remembered under the
keys that it can come back as: with its thinking or without, as the client sees fit. A prompt that
begins with one of them goes on behind the sampled tokens, hidden thinking included.
"""

import dataclasses
import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ds4agent.server.prompt_tokens import Prompt, PromptRenderer, spelled
from engine.chat.conversation import Conversation, Message
from engine.errors import EngineError
from engine.session import Session
from sessions.prefix_lookup import digests_at

_MAX_ALIASES = 400  # of one conversation: some hundred replies


@dataclass(frozen=True, slots=True)
class Alias:
    """What a prompt looks like that covers the first ``n_tokens`` of the state.

    Attributes:
        n_key: Bytes of the key.
        digest: SHA-1 of the key.
        n_tokens: Tokens of the state.
        close: Tokens that have to follow them before anything else.
        text: For a checkpoint: the key with control tokens spelled out.
    """

    n_key: int
    digest: bytes
    n_tokens: int
    close: tuple[int, ...]
    text: bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """How to make the state a prompt: keep ``n_kept`` tokens, all tokens are then ``tokens``."""

    n_kept: int
    tokens: tuple[int, ...]

    @property
    def n_new(self) -> int:
        """Tokens to evaluate."""
        return len(self.tokens) - self.n_kept


class LiveState:
    """One session of the engine, and what is known about its tokens.

    Attributes:
        session: The session.
        call_ids: Calls that wait for their results at the very end of the state, in order.
        last_used: For choosing the state that goes: larger is later.
        n_saved: Tokens of the last checkpoint that was written of this state.
    """

    def __init__(self, session: Session, renderer: PromptRenderer) -> None:
        self.session = session
        self.call_ids: tuple[str, ...] = ()
        self.last_used = 0
        self.n_saved = 0
        self._renderer = renderer
        self._aliases: list[Alias] = []
        self._calls_at = -1  # tokens at which ``call_ids`` holds
        self._closing: tuple[int, ...] = ()
        self._calling: tuple[Conversation, Message] | None = None

    def plan(self, prompt: Prompt) -> Plan:
        """Return the way to a prompt that keeps most of the state."""
        live = self.session.tokens
        plans = [self._through_key(prompt, live), *self._through_alias(prompt, live)]
        return max(plans, key=lambda plan: (plan.n_kept, -plan.n_new))

    def plan_for_results(self, results: Sequence[Message]) -> Plan | None:
        """Return the way on with nothing but tool results; None unless exactly the calls at the
        end of the state are answered."""
        live = self.session.tokens
        if self._calling is None or len(live) != self._calls_at:
            return None
        if {m.call_id for m in results} != set(self.call_ids) or len(results) != len(self.call_ids):
            return None
        conversation, reply = self._calling
        before = dataclasses.replace(conversation, messages=(*conversation.messages, reply))
        after = dataclasses.replace(before, messages=(*before.messages, *results))
        seen = self._renderer.replies_up_to_end(before)
        prompt = self._renderer.render(after)
        rest = None if seen is None else self._renderer.rest_after(prompt, len(seen))
        if rest is None:
            return None
        return Plan(len(live), (*live, *self._closing, *rest))

    def rewind(self, n_tokens: int) -> bool:
        """Cut the state back; False where its cache can't, and nothing has changed."""
        if n_tokens < len(self.session.tokens):
            try:
                self.session.rewind(n_tokens)
            except EngineError:
                return False
            self._aliases = [a for a in self._aliases if a.n_tokens <= n_tokens]
            self.n_saved = min(self.n_saved, n_tokens)
        return True

    def clear(self) -> None:
        """Forget the conversation."""
        self.session.rewind(0)
        self._aliases.clear()
        self.forget_calls()
        self.n_saved = 0

    def forget_calls(self) -> None:
        """No results are waited for any more."""
        self.call_ids, self._calling, self._calls_at = (), None, -1

    def stands_for(self, key: bytes) -> None:
        """Remember that the state, as it is now, is what a prompt with this key means."""
        self._add(key, spelled(key), ())

    def answered(
        self,
        conversation: Conversation,
        reply: Message,
        call_ids: Sequence[str],
        close: Sequence[int],
        gets_thinking_back: bool,
    ) -> None:
        """Remember the reply at the end of the state under every form it can come back in.

        Args:
            conversation: What it answered.
            reply: What the client was told, the calls as they were sampled.
            call_ids: Ids of its calls.
            close: What has to follow its tokens before the next turn.
            gets_thinking_back: Which form is the likelier one; a checkpoint has that only.
        """
        self._closing = tuple(close)
        if call_ids:
            self.call_ids = tuple(call_ids)
            self._calling = (conversation, reply)
            self._calls_at = len(self.session.tokens)
        forms = (reply.reasoning, None) if gets_thinking_back else (None, reply.reasoning)
        for key in {k: None for k in self._keys_of(conversation, reply, forms)}:
            self._add(key, spelled(key), self._closing)

    def key_at_end(self) -> Alias | None:
        """Return the likeliest alias of the whole state, for a checkpoint; None where there is
        none, or where the state's own text says the same."""
        n_tokens = len(self.session.tokens)
        alias = next((a for a in self._aliases if a.n_tokens == n_tokens), None)
        if alias is None:
            return None
        own = self._renderer.keys.join(self.session.tokens)
        closed = own + self._renderer.keys.join(alias.close)
        same = (own[: alias.n_key], closed)
        is_own = any(hashlib.sha1(key).digest() == alias.digest for key in same)
        return None if is_own else alias

    def _through_key(self, prompt: Prompt, live: Sequence[int]) -> Plan:
        keys = self._renderer.keys
        ends = list(accumulate(len(keys.of(i)) for i in live))
        same = _common_length(keys.join(live), prompt.key)
        n_same = bisect_right(ends, same)
        if n_same == len(live):
            rest = self._renderer.rest_after(prompt, ends[-1] if ends else 0)
            if rest is not None:
                return Plan(n_same, (*live, *rest))
        # Cut at a control token, where nothing is encoded across, and let tokens decide from there.
        places = range(min(n_same, len(live) - 1), 0, -1)
        at = next((i for i in places if keys.is_control(live[i])), 0)
        rest = self._renderer.rest_after(prompt, ends[at - 1] if at else 0)
        if rest is None:
            at, rest = 0, list(prompt.ids)
        tokens = (*live[:at], *rest)
        return Plan(_common_tokens(live, tokens, at), tokens)

    def _through_alias(self, prompt: Prompt, live: Sequence[int]) -> Iterable[Plan]:
        lengths = {a.n_key for a in self._aliases if a.n_key <= len(prompt.key)}
        digests = digests_at(prompt.key, lengths)
        found = [a for a in self._aliases if digests.get(a.n_key) == a.digest]
        if not found:
            return
        alias = max(found, key=lambda a: (a.n_tokens, a.n_key))
        rest = self._renderer.rest_after(prompt, alias.n_key)
        if rest is not None:
            tokens = (*live[: alias.n_tokens], *alias.close, *rest)
            yield Plan(_common_tokens(live, tokens, alias.n_tokens), tokens)

    def _keys_of(
        self, conversation: Conversation, reply: Message, forms: Iterable[str | None]
    ) -> Iterable[bytes]:
        results = [Message("tool", "-", call_id=call.call_id) for call in reply.calls]
        following = [Message("user", "-")]
        for reasoning in dict.fromkeys(forms):
            said = dataclasses.replace(reply, reasoning=reasoning)
            for after in [results, following] if results else [following]:
                messages = (*conversation.messages, said, *after)
                whole = dataclasses.replace(conversation, messages=messages)
                try:
                    key = self._renderer.replies_up_to_end(whole)
                except Exception:  # a form that the layout refuses never comes back
                    continue
                if key is not None:
                    yield key

    def _add(self, key: bytes, text: bytes, close: tuple[int, ...]) -> None:
        digest = hashlib.sha1(key).digest()
        n_tokens = len(self.session.tokens)
        alias = Alias(len(key), digest, n_tokens, close, text)
        # The text serves checkpoints of this very moment; of earlier ones it would fill the memory.
        self._aliases = [
            a if a.n_tokens == n_tokens else dataclasses.replace(a, text=b"")
            for a in self._aliases[-_MAX_ALIASES:]
            if a.digest != digest
        ]
        self._aliases.append(alias)


def _common_tokens(live: Sequence[int], tokens: Sequence[int], start: int) -> int:
    """Return how many first tokens are equal; ``start`` of them are known to be."""
    n = start
    for ours, theirs in zip(live[start:], tokens[start:], strict=False):
        if ours != theirs:
            break
        n += 1
    return n


def _common_length(a: bytes, b: bytes) -> int:
    """Return how many first bytes are equal, by halving."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
