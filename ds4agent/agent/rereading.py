"""The tokens of a saved conversation whose state does not serve here."""

from engine.engine import Engine
from engine.errors import StateMismatch
from sessions.checkpoint import opened
from sessions.record import SessionRecord
from sessions.safe_file import plain_errors
from sessions.store import SessionStore


def tokens_to_read(
    engine: Engine, store: SessionStore, id_prefix: str
) -> tuple[SessionRecord, tuple[int, ...]]:
    """Return what is known about a conversation, and its tokens in the engine's vocabulary.

    Raises:
        CheckpointError: there is no such session, or it is damaged.
        StateMismatch: its text is not in the chat format of the engine's model.
    """
    record = store.find(id_prefix)
    if record.is_stripped:
        tokens: tuple[int, ...] = ()
        with plain_errors("read the session", record.path), opened(record.path) as checkpoint:
            text = checkpoint.text()
    else:
        restored = store.restore(record.id)
        tokens, text = restored.state.tokens, restored.text
    tokenizer = engine.tokenizer
    # Equal tokens that spell the same bytes: it is the same vocabulary, whatever the weights.
    if tokens and max(tokens) < tokenizer.n_vocab and tokenizer.render(tokens) == text:
        return record, tokens
    tokens = tuple(tokenizer.encode_rendered(text.decode("utf-8", "replace")))
    roles = {turn.role for turn in engine.chat.turns(tokens)}
    if tokenizer.render(tokens) != text or "user" not in roles:
        raise StateMismatch(
            f"session {record.id[:8]} is written in the chat format of another model "
            f"({record.model or 'unknown'})",
            "Start with the model it was made with.",
        )
    return record, tokens
