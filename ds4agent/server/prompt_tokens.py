"""The prompt of a request, in the three forms that finding its beginning again needs.

* its tokens, turn by turn; a turn that was seen before is not encoded a second time;
* its *key*: the bytes of the tokens, in which a control token can't be forged by text;
* its *text*: the bytes with control tokens spelled out, which name checkpoints on the disk.

Two prompts with the same beginning of keys mean the same conversation up to there, even where the
tokens differ: a model does not always write a word as the tokens that reading it gives.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.prompt import layout_of
from engine.chat.conversation import (
    AssistantTurn,
    Conversation,
    HeadTurn,
    ReminderTurn,
    SystemTurn,
    Turn,
    UserTurn,
)
from engine.chat.format import ChatFormat
from engine.chat.segments import Segment, encode
from engine.errors import ConversationError
from engine.tokenizer import Tokenizer

# 0xff occurs in no UTF-8 text; where a model samples it, it is followed by 0x00.
_FF, _ESCAPED_FF = b"\xff", b"\xff\x00"
_OPEN, _CLOSE = b"\xff\x01", b"\xff\x02"
_MAX_CACHED_BYTES = 64 << 20


class TokenKeys:
    """The key of each token of a vocabulary, made when it is first asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._keys: dict[int, bytes] = {}

    def of(self, token_id: int) -> bytes:
        """Return the key of one token."""
        key = self._keys.get(token_id)
        if key is None:
            key = self._keys[token_id] = self._make(token_id)
        return key

    def is_control(self, token_id: int) -> bool:
        """Whether a token is a control or markup token: text is never encoded across it."""
        return self.of(token_id).startswith(_OPEN)

    def join(self, token_ids: Sequence[int]) -> bytes:
        """Return the key of a token sequence."""
        return b"".join(map(self.of, token_ids))

    def _make(self, token_id: int) -> bytes:
        spelled = self._tokenizer.render([token_id])
        name = spelled.decode("utf-8", "replace")
        if self._tokenizer.has_control(name) and self._tokenizer.control_id(name) == token_id:
            return _OPEN + spelled + _CLOSE
        return spelled.replace(_FF, _ESCAPED_FF)


@dataclass(frozen=True, slots=True)
class RenderedTurn:
    """One turn: its segments, and the tokens and the key of each segment."""

    segments: tuple[Segment, ...]
    ids: tuple[tuple[int, ...], ...]
    keys: tuple[bytes, ...]
    n_tokens: int
    n_key: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation.

    Attributes:
        turns: Its turns in order.
        ids: Its tokens as reading it from scratch gives them.
        key: Its key.
        text: Its bytes, control tokens spelled out.
        quotes_control: Some text in it spells the name of a control token, so that ``text`` alone
            can be read in two ways.
    """

    conversation: Conversation
    turns: tuple[RenderedTurn, ...]
    ids: tuple[int, ...]
    key: bytes
    text: bytes
    quotes_control: bool


class PromptRenderer:
    """Renders conversations. May be used by several threads."""

    def __init__(self, chat: ChatFormat, tokenizer: Tokenizer) -> None:
        self.keys = TokenKeys(tokenizer)
        self.layout = layout_of(chat)
        self._tokenizer = tokenizer
        self._longest = max(len(tokenizer.token_bytes(i)) for i in range(tokenizer.n_vocab))
        self._cache: OrderedDict[tuple[Segment, ...], RenderedTurn] = OrderedDict()
        self._cached_bytes = 0
        self._lock = threading.Lock()

    def least_tokens(self, conversation: Conversation) -> int:
        """Return a number of tokens that a conversation has at least, without encoding it: no
        token has more characters than the longest one.

        Raises:
            ApiError: the chat format has no form for a part of it.
        """
        texts = (text for turn in self.turns(conversation) for text in _texts_of(turn))
        return sum(1 + len(text) // self._longest for text in texts)

    def render(self, conversation: Conversation) -> Prompt:
        """Render a conversation.

        Raises:
            ApiError: the chat format has no form for a part of it.
        """
        turns = tuple(self.turn(turn) for turn in self.turns(conversation))
        ids = tuple(i for turn in turns for part in turn.ids for i in part)
        key = b"".join(part for turn in turns for part in turn.keys)
        return Prompt(conversation, turns, ids, key, spelled(key), self._quotes_control(turns))

    def turns(self, conversation: Conversation) -> list[Turn]:
        """Return the turns of a conversation.

        Raises:
            ApiError: the chat format has no form for a part of it.
        """
        try:
            return self.layout.turns(conversation)
        except ConversationError as error:
            raise ApiError(f"{error}. {error.hint}".strip()) from error

    def turn(self, turn: Turn) -> RenderedTurn:
        """Render one turn, or return it from the cache."""
        try:
            segments = tuple(self.layout.turn_segments(turn))
        except ConversationError as error:
            raise ApiError(f"{error}. {error.hint}".strip()) from error
        with self._lock:
            known = self._cache.get(segments)
            if known is not None:
                self._cache.move_to_end(segments)
                return known
        ids = tuple(tuple(encode([segment], self._tokenizer)) for segment in segments)
        keys = tuple(map(self.keys.join, ids))
        rendered = RenderedTurn(
            segments, ids, keys, sum(map(len, ids)), sum(len(key) for key in keys)
        )
        with self._lock:
            if segments not in self._cache:
                self._cache[segments] = rendered
                self._cached_bytes += _weight(rendered)
            while self._cached_bytes > _MAX_CACHED_BYTES and len(self._cache) > 1:
                _, oldest = self._cache.popitem(last=False)
                self._cached_bytes -= _weight(oldest)
        return rendered

    def replies_up_to_end(self, conversation: Conversation) -> bytes | None:
        """Return the key of a conversation up to the end of its last reply; None without one."""
        turns = self.turns(conversation)
        last = next((i for i in reversed(range(len(turns))) if _is_reply(turns[i])), None)
        if last is None:
            return None
        return b"".join(key for turn in turns[: last + 1] for key in self.turn(turn).keys)

    def key_length(self, prompt: Prompt, n_text: int) -> int | None:
        """Return how many bytes of the key stand for the first bytes of the text; None where these
        end inside a control token."""
        n_key, left = 0, n_text
        for turn in prompt.turns:
            for key in turn.keys:
                if not left:
                    return n_key
                text = spelled(key)
                if len(text) > left:
                    if key.startswith(_OPEN):
                        return None
                    return n_key + len(text[:left].replace(_FF, _ESCAPED_FF))
                n_key, left = n_key + len(key), left - len(text)
        return None if left else n_key

    def rest_after(self, prompt: Prompt, n_key: int) -> list[int] | None:
        """Return the tokens of a prompt from a place in its key on, encoded on their own.

        Never a slice of the whole prompt's tokens: a token may reach across the place.

        Args:
            prompt: What was rendered.
            n_key: Bytes of its key that are covered.

        Returns:
            The tokens; None where the place is inside a control token or a character.
        """
        rest: list[int] = []
        at = 0
        for turn in prompt.turns:
            if at >= n_key:
                rest += [i for part in turn.ids for i in part]
            elif at + turn.n_key > n_key:
                inside = self._rest_of_turn(turn, n_key - at)
                if inside is None:
                    return None
                rest += inside
            at += turn.n_key
        return rest if n_key <= at else None

    def _rest_of_turn(self, turn: RenderedTurn, n_key: int) -> list[int] | None:
        rest: list[int] = []
        at = 0
        for segment, ids, key in zip(turn.segments, turn.ids, turn.keys, strict=True):
            if at >= n_key:
                rest += ids
            elif at + len(key) > n_key:
                if not isinstance(segment, str):
                    return None
                try:
                    text = key[n_key - at :].replace(_ESCAPED_FF, _FF).decode("utf-8")
                except UnicodeDecodeError:
                    return None
                rest += encode([text], self._tokenizer)
            at += len(key)
        return rest

    def _quotes_control(self, turns: Sequence[RenderedTurn]) -> bool:
        texts = {s.text for turn in turns for s in turn.segments if not isinstance(s, str)}
        return any(
            name in segment
            for turn in turns
            for segment in turn.segments
            if isinstance(segment, str)
            for name in texts
        )


def spelled(key: bytes) -> bytes:
    """Return the text of a key: control tokens spelled out."""
    return key.replace(_OPEN, b"").replace(_CLOSE, b"").replace(_ESCAPED_FF, _FF)


def _texts_of(turn: Turn) -> Iterable[str]:
    """Yield texts that are part of a turn: at least one, and not all of them."""
    match turn:
        case HeadTurn(system):
            yield system or ""
        case UserTurn(parts):
            yield from (text for _, text in parts)
        case AssistantTurn(message):
            yield message.content
        case SystemTurn(text) | ReminderTurn(text):
            yield text


def _is_reply(turn: Turn) -> bool:
    return isinstance(turn, AssistantTurn) and not turn.message.is_prefix


def _weight(turn: RenderedTurn) -> int:
    return 2 * turn.n_key + 8 * turn.n_tokens + 200
