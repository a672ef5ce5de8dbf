"""A word to a model that stopped too early: it only told what it will do, or did nothing at all.

Once in a turn at most, and the person sees it. A model that was right to stop answers in a line.
"""

import re

_INTENT = re.compile(
    r"\b(?:I(?:'ll| will| am going to|'m going to| shall)|let me|let's|next,? I)\b"
    r"(?:[^.!?\n]|[.](?=\w))*[.!:…]*\s*\Z",  # to the end: it is the last sentence
    re.IGNORECASE,
)
_LONGEST_INTENT = 600  # characters: a longer answer is one, whatever its last sentence
_CHANGE = re.compile(
    r"\b(?:add|append|change|convert|correct|create|delete|fix|implement|insert|introduce|make|move|"
    r"mend|refactor|remove|rename|repair|replace|set|sort|update|write)\b",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"\?\s*\Z|\A\s*(?:what|which|who|why|how|when|where|is|are|does|do|can)\b", re.I
)

# Also of a model that wrote its call into its thoughts, where it is none, and stopped.
NO_ANSWER = "You stopped without an answer. Make the next call, or answer."
GO_ON = "Go on: do it now, with a call."
NOTHING_CHANGED = "Nothing was changed yet. Make the change now, with a call."


def nudge(answer: str, task: str, *, has_changed: bool, is_small: bool) -> str:
    """Return what to say to the model, "" for nothing.

    Args:
        answer: the text of an answer without a call.
        task: the person's message.
        has_changed: a file was changed, or a command run, in this turn.
        is_small: the model often describes a change instead of making it, and may make one.
    """
    text = answer.strip()
    if not text:
        return NO_ANSWER
    if len(text) <= _LONGEST_INTENT and _INTENT.search(text):
        return GO_ON
    asks_for_change = _CHANGE.search(task) is not None and not _QUESTION.search(task)
    if is_small and asks_for_change and not has_changed:
        return NOTHING_CHANGED
    return ""
