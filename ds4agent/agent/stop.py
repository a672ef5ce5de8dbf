"""Why a turn ends before the model ends it."""

from dataclasses import dataclass

from ds4agent.events import Outcome


@dataclass(frozen=True, slots=True)
class Stop:
    """A reason to end the turn."""

    outcome: Outcome
    error: str  # one line for the person, "" when it is none


INTERRUPTED = Stop(Outcome.INTERRUPTED, "interrupted")
