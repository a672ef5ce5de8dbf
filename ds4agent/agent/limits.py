"""What the person is told when a turn comes to a limit: what it is, and what to do."""


def long_message(n_message: int, n_free: int, missing: int) -> str:
    """A message does not fit; counts in tokens."""
    return (
        f"the message has {n_message} tokens and {n_free} are free: {missing} too many, an answer "
        "needs room too. Shorten it, begin a new conversation (/new) or start with a larger --ctx."
    )


def full(n_used: int, ctx: int) -> str:
    """There is no room for an answer; counts in tokens."""
    return (
        f"the context is full ({n_used} of {ctx} tokens). "
        "/compact makes room, /new begins a new conversation, --ctx makes it larger."
    )


def long_answer(max_tokens: int) -> str:
    """An answer was cut."""
    return f"the answer reached the limit of {max_tokens} tokens. Say 'go on', or raise --tokens."
