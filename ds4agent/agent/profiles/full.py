"""The profile for models that work by themselves: all tools, and nothing is forced."""

from collections.abc import Sequence

from ds4agent.agent.calls import CallOutcome
from ds4agent.agent.mentions import expand
from ds4agent.agent.nudges import nudge
from ds4agent.agent.profiles.guide import GO_ON, After, ReplyForm, Surroundings
from ds4agent.agent.profiles.profile import Profile


class FreeGuide:
    """Lets the model do as it likes; asks it once to go on when it only told what it will do."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    def attach(self, text: str) -> str:
        """Return a message with what it mentions by ``@``."""
        return expand(text, self._around.toolbox, self._around.warn)

    def begin(self, text: str) -> str:
        """Return the message of a new turn."""
        return self.attach(text)

    def form(self) -> ReplyForm:
        """Leave the next answer free."""
        return ReplyForm()

    def after(self, outcomes: Sequence[CallOutcome]) -> After:
        """Go on with the results."""
        return GO_ON

    def nudge(self, answer: str) -> str:
        """Return what to say to a model that stopped too early, "" for nothing."""
        return nudge(answer)


FULL = Profile(name="full", prompt="agent.md", guide=FreeGuide)
