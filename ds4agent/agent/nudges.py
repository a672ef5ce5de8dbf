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
_VERBS = (
    "add|append|change|convert|correct|create|delete|extend|fix|generate|implement|insert|introduce|"
    "make|move|mend|refactor|remove|rename|repair|replace|rewrite|save|set|sort|split|store|swap|"
    "turn|update|write"
)
# A request stands at the beginning of a clause: "show what update does" is none.
_CHANGE = re.compile(
    rf"(?:\A|[,;:]|\b(?:and|then|please|must|should|you|need to|want to|have to|let us|let's)\b)"
    rf"[\s\W]*(?:(?:please|now|just|also|then|first|and)\s+)*(?:{_VERBS})\b",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"\?\s*\Z|\A\s*(?:what|which|who|why|how|when|where|is|are|does|do)\b", re.IGNORECASE
)
_ASKED_TO = re.compile(r"\b(?:can|could|will|would)\s+you\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")

# Also of a model that wrote its call into its thoughts, where it is none, and stopped.
NO_ANSWER = "You stopped without an answer. Make the next call, or answer."
GO_ON = "Go on: do it now, with a call."
NOTHING_CHANGED = "Nothing was changed yet. Make the change now."


def asks_for_change(task: str) -> bool:
    """Tell whether a sentence of a message asks to change something, in English."""
    return any(
        _CHANGE.search(sentence) and (not _QUESTION.search(sentence) or _ASKED_TO.search(sentence))
        for sentence in _SENTENCE_END.split(task.strip())
    )


def nudge(answer: str, *, is_undone: bool = False) -> str:
    """Return what to say to the model, "" for nothing.

    Args:
        answer: the text of an answer without a call.
        is_undone: a change was asked for and none was tried, by a model that often describes one
            instead of making it.
    """
    text = answer.strip()
    if not text:
        return NO_ANSWER
    if len(text) <= _LONGEST_INTENT and _INTENT.search(text):
        return GO_ON
    return NOTHING_CHANGED if is_undone else ""
