"""Two watchmen of a turn: one for a model that repeats a call, one for one that repeats itself."""

import json
import re
from collections import Counter
from typing import Any

REPEATED_CALLS = 3  # same call, same result: the model is told; once more: the turn ends
REPEATED_IN_TURN = 6  # the same even though files changed in between: once more ends the turn
MALFORMED_IN_A_ROW = 3  # then the turn ends

_CHECK_EVERY = 32  # tokens
_LONGEST_PERIOD = 128  # tokens
_SUSPICIOUS = 256  # repeated tokens that make sampling change; a table of zeros may have them
_HOPELESS = 2048  # repeated tokens that end the answer, also one of numbers
_LEAST_REPEATS = 6
_WORD_OR_FENCE = re.compile(rb"[A-Za-z\x80-\xff]{3}|```")


class CallHistory:
    """Counts calls that gave the same result again.

    A change of a file starts the count anew: running the tests after each edit is no loop, even
    when they fail in the same way each time. Only so often, though: a model may edit a line to
    and fro for ever.
    """

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._seen_in_turn: Counter[str] = Counter()
        self._before_change: set[str] = set()  # calls made before the last change, or making it
        self._since_change: set[str] = set()

    def is_pointless(self, name: str, arguments: dict[str, Any], *, can_change: bool) -> bool:
        """Tell whether this very call was made before and can bring nothing new.

        A question is pointless until something changes. A change is pointless once it was made,
        or once another was made instead of it.
        """
        call = json.dumps([name, arguments], sort_keys=True, default=str)
        return call in (self._before_change if can_change else self._since_change)

    def count(self, name: str, arguments: dict[str, Any], result: str, *, changed: bool) -> int:
        """Note a call and return how often it has given this very result, this time included."""
        key = json.dumps([name, arguments, result], sort_keys=True, default=str)
        call = json.dumps([name, arguments], sort_keys=True, default=str)
        self._since_change.add(call)
        if changed:
            self._before_change |= self._since_change
            self._since_change.clear()
        if changed and key not in self._seen:
            self._seen.clear()
        self._seen[key] += 1
        self._seen_in_turn[key] += 1
        if self._seen_in_turn[key] > REPEATED_IN_TURN:
            return self._seen_in_turn[key]
        return self._seen[key]


class RepetitionWatch:
    """Notices when the tail of an answer is one short piece over and over.

    What repeats is suspicious first, and sampling changes. Words and fences that then go on for as
    long again will not end by themselves. Numbers and brackets may be what was asked for.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._pieces: list[bytes] = []
        self._n_since_check = 0
        self._hopeless = _HOPELESS  # length of what was found last at which it ends the answer

    def add(self, token_id: int, data: bytes = b"") -> None:
        """Note the next token of the answer and its bytes."""
        self._ids.append(token_id)
        self._pieces.append(data)
        self._n_since_check += 1

    def repeated_tokens(self) -> int:
        """Return the length of the repetition at the end, 0 while it is not suspicious.

        Looked for every 32 tokens only: most answers never repeat, and looking costs time.
        """
        if self._n_since_check < _CHECK_EVERY:
            return 0
        self._n_since_check = 0
        for period in range(1, _LONGEST_PERIOD + 1):
            needed = max(_SUSPICIOUS, period * _LEAST_REPEATS)
            if len(self._ids) >= needed and self._run_length(period, needed) >= needed:
                piece = b"".join(self._pieces[-period:])
                self._hopeless = 2 * needed if _says_something(piece) else _HOPELESS
                return self._run_length(period, self._hopeless)
        return 0

    def is_hopeless(self, repeated: int) -> bool:
        """Tell whether the repetition that was found last, of this length, ends the answer."""
        return repeated >= self._hopeless

    def _run_length(self, period: int, limit: int) -> int:
        """Return how many tokens at the end repeat with this period, up to ``limit``."""
        n = period
        ids = self._ids
        while n < min(limit, len(ids)) and ids[-n - 1] == ids[-n - 1 + period]:
            n += 1
        return n


def _says_something(piece: bytes) -> bool:
    """Tell whether a piece has a word of any script, or the marks of a fence."""
    return _WORD_OR_FENCE.search(piece) is not None
