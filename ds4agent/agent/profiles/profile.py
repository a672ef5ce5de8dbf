"""What a profile is."""

from collections.abc import Callable
from dataclasses import dataclass

from ds4agent.agent.profiles.guide import Guide, Surroundings


@dataclass(frozen=True, slots=True)
class Profile:
    """The prompt, the tools and the guidance for a class of models."""

    name: str
    prompt: str  # file of the system prompt, in ``prompts``
    guide: Callable[[Surroundings], Guide]  # made anew for each turn
    tools: tuple[str, ...] | None = None  # those the model is told of; None: all
    lists_tools: bool = True  # in the way of the chat format; else in words, in the prompt
    understood: tuple[str, ...] = ()  # tools that it may call without being told
    offers_limits: bool = True  # optional numbers of tools are among what it is told
    max_call_rounds: int | None = None  # then it has to answer in words
    takes_back_repeats: bool = False  # a call that can bring nothing new ends the calls
