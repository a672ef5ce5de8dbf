"""Taking back turns: what is still in memory, else what is on the disk, else reading again.

A turn begins with a message of the person. To go back to one, the state from before it is needed.
A network that keeps every row just forgets the later ones. One that pools rows (DeepSeek V4) can do
that for the last few tokens only; then the journal has the state of every turn since the last
whole save, and the state of the system prompt is there as well. From the nearest of them the
missing tokens are read again, if the person agrees.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ds4agent.agent.conversation import Conversation, Progress
from ds4agent.errors import Ds4Error
from engine.errors import RewindError
from engine.state import SessionState, SyncReport
from sessions import past_state
from sessions.errors import CheckpointError
from sessions.store import SessionStore


class PrefillNeeded(Ds4Error):
    """Nothing was changed: going back costs tokens, and nobody has agreed to that yet."""


@dataclass(frozen=True, slots=True)
class _Start:
    """A state from which the wanted place is reached."""

    tokens: int
    load: Callable[[], SessionState] | None  # None: an empty state
    is_on_disk: bool = False  # as a part of this conversation, which kept it ever since


def go_back(
    conversation: Conversation,
    n_turns: int,
    *,
    may_prefill: bool,
    store: SessionStore | None,
    head_state: SessionState | None,
    announce: Callable[[int], Progress],
    cancel: threading.Event,
) -> SyncReport:
    """Take back the last turns of a conversation, in memory. The files stay as they are.

    Args:
        conversation: between two turns; everything of it is on the disk if it is kept at all.
        n_turns: how many messages of the person.
        may_prefill: whether tokens may be read again.
        store: where the conversation is kept.
        head_state: of the system prompt.
        announce: called when tokens are read again, with their number.
        cancel: set to stop that; the next turn then reads the rest.

    Raises:
        PrefillNeeded: it costs tokens, and ``may_prefill`` is off. The message says how many.
        Ds4Error: there are not so many turns.
    """
    started_s = time.monotonic()
    target = _target(conversation, n_turns)
    conversation.settle()
    session, wanted = conversation.session, conversation.transcript[:target]
    try:
        session.rewind(target)
    except RewindError as gone:
        start = _nearest(conversation, target, store, head_state)
        cost = target - start.tokens
        if cost and not may_prefill:
            turns = "turn" if n_turns == 1 else f"{n_turns} turns"
            raise PrefillNeeded(
                f"To take back the last {turns}, {cost:,} tokens have to be read again",
                f"/rewind {n_turns} prefill does it.",
            ) from gone
        if start.load is None:
            session.rewind(0)
        else:
            n_kept = start.tokens if start.is_on_disk else 0
            session.load(start.load(), consume=True, n_kept=n_kept)
        report = SyncReport(target, 0, time.monotonic() - started_s)
        if cost:
            report = session.sync(wanted, announce(cost), cancel)
    else:
        report = SyncReport(target, 0, time.monotonic() - started_s)
    conversation.go_back_to(target)
    return report


def _target(conversation: Conversation, n_turns: int) -> int:
    """Return how many tokens there were before the n-th last message of the person."""
    starts = [
        turn.position
        for turn in conversation.chat.turns(conversation.transcript)
        if turn.role == "user" and turn.position >= len(conversation.head)
    ]
    if not starts:
        raise Ds4Error("there is no turn to take back", "Say something first.")
    if n_turns > len(starts):
        turns = "1 turn" if len(starts) == 1 else f"{len(starts)} turns"
        raise Ds4Error(f"{n_turns} turns are to be taken back, there are {turns}")
    return starts[-n_turns]


def _nearest(
    conversation: Conversation,
    target: int,
    store: SessionStore | None,
    head_state: SessionState | None,
) -> _Start:
    """Return the longest state that is a beginning of the wanted one."""
    best = _Start(0, None)
    transcript = conversation.transcript
    if head_state is not None:
        n_head = len(head_state.tokens)
        if n_head <= target and head_state.tokens == transcript[:n_head]:
            # Its arrays stay with their owner: a copy of the mapping is all that is consumed.
            best = _Start(n_head, lambda: _borrowed(head_state))
    if store is not None and conversation.id:
        try:
            past = past_state.latest_before(store, conversation.id, target)
        except CheckpointError:
            past = None  # never saved, or not readable: then it costs more
        if past is not None and past.tokens > best.tokens:
            beginning = transcript[: past.tokens]
            best = _Start(past.tokens, lambda: past_state.load(past, beginning), True)
    return best


def _borrowed(state: SessionState) -> SessionState:
    return SessionState(
        state.family,
        state.fingerprint,
        state.ctx,
        state.tokens,
        state.logits,
        dict(state.arrays),
        state.expert_bits,
    )
