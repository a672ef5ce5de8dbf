"""Reasoning effort: what each generation of DeepSeek V4 checkpoints was trained to be told.

The same word means different things to different checkpoints, so the ladder belongs to the model:

    level         preview       0731 and later    V4.1
    low           nothing       nothing           50
    high, xhigh   nothing       preamble A        75
    max           preamble A    preamble B        100
    not said      nothing       as high           as high

``minimal`` is low and ``medium`` is high, as in the public interfaces. V4.1 also takes a number
from 1 to 100. Effort is told in thinking mode only. The texts are those of the prompt encoders
published with the checkpoints.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from engine.chat.conversation import Effort
from engine.errors import ConversationError

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SAME_AS = {"minimal": "low", "medium": "high", "xhigh": "high"}

_PREAMBLE_A = """\
Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve \
the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and \
adversarial scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, \
considered alternative, and rejected hypothesis to ensure absolutely no assumption is left \
unchecked.

"""
_PREAMBLE_B = """\
Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.
You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: \
exhaustively decompose the problem into its most fundamental components, trace every causal chain \
to its root, and resolve the underlying cause rather than any surface symptom.
Do not stop reasoning until you have independently verified the solution from multiple angles and \
are certain that no assumption remains unchecked and no error remains undiscovered.

"""
_NUMBERED = (
    "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
)


@dataclass(frozen=True, slots=True)
class EffortLadder:
    """The efforts of one generation of checkpoints.

    Attributes:
        preambles: Text of the levels low, high and max.
        default: Level that counts where nothing is said.
        numbered: Form of a number from 1 to 100; empty where the checkpoint knows no numbers.
    """

    preambles: Mapping[str, str]
    default: str
    numbered: str = ""

    def preamble(self, effort: Effort) -> str:
        """Return what stands before the system text in thinking mode.

        Raises:
            ConversationError: the checkpoint knows no such effort.
        """
        if isinstance(effort, int):
            if self.numbered and 1 <= effort <= 100:
                return self.numbered.format(effort)
        else:
            level = self.default if effort is None else _SAME_AS.get(effort, effort)
            if level in self.preambles:
                return self.preambles[level]
        numbers = ", or a number from 1 to 100" if self.numbered else ""
        raise ConversationError(
            f"the effort is {effort!r}, expected one of {', '.join(EFFORTS)}{numbers}",
            "Choose one of these.",
        )


PREVIEW = EffortLadder({"low": "", "high": "", "max": _PREAMBLE_A}, default="high")
REFRESHED = EffortLadder({"low": "", "high": _PREAMBLE_A, "max": _PREAMBLE_B}, default="high")
NUMBERED = EffortLadder(
    {
        "low": _NUMBERED.format(50),
        "high": _NUMBERED.format(75),
        "max": _NUMBERED.format(100),
    },
    default="high",
    numbered=_NUMBERED,
)
