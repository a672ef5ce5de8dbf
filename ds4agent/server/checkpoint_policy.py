"""When a server saves what: the policy and the numbers of antirez/ds4.

``cold``       the beginning of a first prompt, which other conversations of a client share
``continued``  every so many tokens of a long conversation
``evict``      before another conversation takes the place of one
``shutdown``   at the end
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.chat.format import TurnStart


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """The numbers, in tokens.

    Attributes:
        min_tokens: Less is faster read than loaded.
        cold_max_tokens: A longer first prompt gets no cold checkpoint; 0: none does.
        continued_interval: Between two continued checkpoints, rounded up to ``align``; 0: none.
        trim: Left out at the end of a prompt without an anchor: its last tokens change most.
        align: Checkpoints without an anchor end at a multiple of this; 0: anywhere.
    """

    min_tokens: int = 512
    cold_max_tokens: int = 30_000
    continued_interval: int = 10_000
    trim: int = 32
    align: int = 2048

    @property
    def step(self) -> int:
        """Tokens between two continued checkpoints; 0: there are none."""
        if self.continued_interval <= 0:
            return 0
        if self.align <= 0:
            return self.continued_interval
        return -(-self.continued_interval // self.align) * self.align

    def store_length(self, n_tokens: int) -> int:
        """Return how many first tokens of a prompt without an anchor to save."""
        if n_tokens > self.min_tokens + self.trim:
            length = n_tokens - self.trim
            if self.align > 0:
                length -= length % self.align
            if length >= self.min_tokens:
                return length
        return n_tokens

    def cold_length(self, n_tokens: int, turns: Sequence[TurnStart]) -> int:
        """Return how many first tokens of a prompt that nothing was known of to save; 0: none.

        The anchor is the last turn of a person before the first reply: what stands before it, the
        system prompt and the tools, is what other conversations begin with, too.
        """
        if not self.min_tokens <= n_tokens <= self.cold_max_tokens:
            return 0
        anchor = 0
        for turn in turns:
            if turn.role == "assistant":
                break
            if turn.role == "user":
                anchor = turn.position
        return anchor if anchor >= self.min_tokens else self.store_length(n_tokens)

    def next_continued(self, n_tokens: int) -> int:
        """Return the length of the next continued checkpoint above ``n_tokens``; 0: none."""
        if not self.step:
            return 0
        following = (n_tokens // self.step + 1) * self.step
        return max(following, -(-self.min_tokens // self.step) * self.step)
