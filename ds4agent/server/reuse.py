"""Making the model's memory a prompt, with as little reading as can be had.

In order of what costs least: a state in memory that is the prompt's beginning, or was until some
token; the longest checkpoint on the disk; reading. Conversations that make room for another are
saved first.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

from ds4agent.server.checkpoint_policy import CheckpointPolicy
from ds4agent.server.disk_cache import DiskCache
from ds4agent.server.live_state import LiveState, Plan
from ds4agent.server.prompt_tokens import Prompt, PromptRenderer
from engine.engine import Engine
from engine.errors import ContextFull, EngineError
from engine.memory import is_out_of_memory
from sessions.kvc import Reason
from sessions.prefix_lookup import Match

_log = logging.getLogger(__name__)
_MIN_GAIN = 128  # tokens that a checkpoint must save: less is faster read than loaded
_LOSS = 0.5  # cost of a token that leaves the memory, in tokens that are read
_LOAD = 0.05  # the same of a token that is loaded


@dataclass(frozen=True, slots=True)
class Ready:
    """The state is the prompt.

    Attributes:
        live: The state.
        n_prompt: Its tokens.
        n_cached: Of these, not evaluated now.
        source: Where most of those came from: ``memory``, ``disk`` or ``none``.
        cancelled: The request was given up meanwhile; the state has what was read.
    """

    live: LiveState
    n_prompt: int
    n_cached: int
    source: str
    cancelled: bool = False


class Reuse:
    """The states in memory and the checkpoints on the disk. Belongs to the engine's thread."""

    def __init__(
        self,
        engine: Engine,
        renderer: PromptRenderer,
        policy: CheckpointPolicy,
        disk: DiskCache | None,
        max_live: int,
    ) -> None:
        self.live: list[LiveState] = []
        self._engine = engine
        self._renderer = renderer
        self._policy = policy
        self._disk = disk
        self._max_live = max_live
        self._clock = 0

    def waiting_calls(self) -> frozenset[str]:
        """Ids of the calls at the end of a state in memory."""
        return frozenset(i for live in self.live for i in live.call_ids)

    def prepare_results(
        self, results: list, progress: Callable[[int], None], cancel: Event
    ) -> Ready | None:
        """Go on with nothing but tool results; None where no state waits for exactly them."""
        for live in self.live:
            plan = live.plan_for_results(results)
            if plan is not None and len(plan.tokens) < self._engine.info.ctx:
                self._use(live)
                return self._read(live, plan, "memory", [], progress, cancel)
        return None

    def prepare(self, prompt: Prompt, progress: Callable[[int], None], cancel: Event) -> Ready:
        """Make a state the prompt.

        Args:
            prompt: Fewer tokens than the context holds.
            progress: Called with the tokens read in each chunk.
            cancel: Looked at before each chunk.
        """
        matches = self._disk.find(prompt.text, self._policy.min_tokens) if self._disk else []
        live, plan, match = self._choose(prompt, matches)
        self._use(live)
        source = "memory" if plan.n_kept else "none"
        stops: list[int] = []
        if match is not None:
            source, plan = self._from_disk(live, prompt, matches)
        else:
            if self._loss(live, plan) >= self._policy.min_tokens:
                self.keep(live, Reason.EVICT)
            if not live.rewind(plan.n_kept):
                stops = self._borders(plan)
                source, plan = self._from_disk(live, prompt, matches)
        if plan.n_kept < self._policy.min_tokens:  # the first words of two agents may be the same
            cold = self._policy.cold_length(len(plan.tokens), self._engine.chat.turns(plan.tokens))
            stops.append(cold)
        if len(plan.tokens) >= self._engine.info.ctx:  # hidden thinking may not leave enough room
            plan = _canonical(live, prompt)
        ready = self._read(live, plan, source, stops, progress, cancel)
        if not ready.cancelled:
            live.stands_for(prompt.key)
        return ready

    def drop_used(self, *, is_out_of_memory: bool) -> None:
        """Forget the state that was used last: something failed in the middle of it. Where that
        was the memory, no more states are kept from now on than were left."""
        if self.live:
            self.live.remove(max(self.live, key=lambda live: live.last_used))
        if is_out_of_memory:
            self._max_live = max(1, len(self.live))

    def keep(self, live: LiveState, reason: Reason) -> None:
        """Save a state, if it is worth it and isn't saved already."""
        n_tokens = len(live.session.tokens)
        if self._disk is None or n_tokens < self._policy.min_tokens or n_tokens == live.n_saved:
            return
        alias = live.key_at_end()
        if alias is not None and alias.close:
            try:
                live.session.extend(alias.close)
            except ContextFull:
                alias = None
        self._save(live, reason, alias.text if alias is not None else None)

    def keep_all(self, reason: Reason) -> None:
        """Save every state in memory."""
        for live in self.live:
            live.forget_calls()
            self.keep(live, reason)

    def continued(self, live: LiveState) -> None:
        """Save a state that has come to a multiple of the step."""
        if self._disk is not None:
            self._save(live, Reason.CONTINUED, None)

    def _save(self, live: LiveState, reason: Reason, text: bytes | None) -> None:
        session = live.session
        own = self._engine.tokenizer.render(session.tokens) if text is None else text
        live.n_saved = len(session.tokens)
        self._disk.save(session.state, own, reason)

    def _use(self, live: LiveState) -> None:
        self._clock += 1
        live.last_used = self._clock

    def _loss(self, live: LiveState, plan: Plan) -> int:
        return len(live.session.tokens) - max(plan.n_kept, live.n_saved)

    def _choose(self, prompt: Prompt, matches: list[Match]) -> tuple[LiveState, Plan, Match | None]:
        """Choose the state to use, and whether a checkpoint is loaded into it first."""
        n_prompt = len(prompt.ids)
        match = matches[0] if matches else None
        n_disk = min(match.tokens, n_prompt) if match else 0
        options: list[tuple[float, int, LiveState, Plan, Match | None]] = []
        for live in self.live:
            plan = live.plan(prompt)
            lost = max(0, self._loss(live, plan))
            lost = lost if lost >= self._policy.min_tokens else 0
            options.append((plan.n_new + _LOSS * lost, live.last_used, live, plan, None))
            if n_disk >= plan.n_kept + _MIN_GAIN:
                cost = n_prompt - n_disk + _LOAD * n_disk + _LOSS * len(live.session.tokens)
                options.append((cost, live.last_used, live, plan, match))
        best = min(options, key=lambda option: option[:2], default=None)
        fresh = n_prompt - (1 - _LOAD) * n_disk
        if best is None or (len(self.live) < self._max_live and fresh < best[0]):
            try:
                live = LiveState(self._engine.new_session(), self._renderer)
            except Exception as error:
                if best is None or not is_out_of_memory(error):
                    raise
                self._max_live = len(self.live)
            else:
                self.live.append(live)
                return live, live.plan(prompt), match
        return best[2], best[3], best[4]

    def _from_disk(self, live: LiveState, prompt: Prompt, matches: list[Match]) -> tuple[str, Plan]:
        """Empty a state and load the best checkpoint that is sound into it."""
        self.keep(live, Reason.EVICT)
        live.clear()
        for match in matches:
            loaded = self._disk.load(match)
            if loaded is None:
                continue
            state, text = loaded
            key = self._renderer.keys.join(state.tokens)
            if not prompt.key.startswith(key):
                # Saved under what the client sees of it. Where a text of the prompt spells a
                # control token, equal bytes don't prove an equal conversation.
                n_key = self._renderer.key_length(prompt, len(text))
                if prompt.quotes_control or n_key is None:
                    continue
                key = prompt.key[:n_key]
            try:
                live.session.load(state, consume=True)
            except EngineError as error:
                _log.warning("a checkpoint is passed over: %s", error)
                live.clear()
                continue
            live.n_saved = len(live.session.tokens)
            live.stands_for(key)
            plan = live.plan(prompt)
            if live.rewind(plan.n_kept):
                return "disk", plan
            live.clear()
        return "none", live.plan(prompt)

    def _borders(self, plan: Plan) -> list[int]:
        """Return where to save on the way, if the state has to be read again because its cache
        can't go back: the last border of a turn before what has changed. A client that changes
        what it said last with every turn then costs that, and not the whole conversation."""
        turns = self._engine.chat.turns(plan.tokens[: plan.n_kept])
        borders = [t.position for t in turns if t.position >= self._policy.min_tokens]
        return borders[-1:]

    def _read(
        self,
        live: LiveState,
        plan: Plan,
        source: str,
        stops: list[int],
        progress: Callable[[int], None],
        cancel: Event,
    ) -> Ready:
        n_total = len(plan.tokens)
        done = plan.n_kept
        while done < n_total:
            stop = self._next_stop(done, n_total, stops)
            report = _increments(progress)
            if live.session.extend(plan.tokens[done:stop], report, cancel).cancelled:
                return Ready(live, n_total, plan.n_kept, source, cancelled=True)
            done = stop
            if done < n_total or stop in stops:
                self._save_at(live, stop in stops)
        return Ready(live, n_total, plan.n_kept, source)

    def _next_stop(self, done: int, n_total: int, stops: list[int]) -> int:
        if self._disk is None:
            return n_total
        places = [stop for stop in (*stops, self._policy.next_continued(done)) if stop > done]
        return min([*places, n_total])

    def _save_at(self, live: LiveState, is_cold: bool) -> None:
        if self._disk is not None:
            self._save(live, Reason.COLD if is_cold else Reason.CONTINUED, None)


def _increments(progress: Callable[[int], None]) -> Callable[[int, int], None]:
    """Return a progress callback that tells what each chunk adds."""
    told = 0

    def report(n_done: int, _: int) -> None:
        nonlocal told
        progress(n_done - told)
        told = n_done

    return report


def _canonical(live: LiveState, prompt: Prompt) -> Plan:
    """Return the plan that takes a prompt as it is read from scratch."""
    n_kept = live.session.common_prefix(prompt.ids)
    if not live.rewind(n_kept):
        live.clear()
        n_kept = 0
    return Plan(n_kept, prompt.ids)
