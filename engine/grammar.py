"""What a generation may say: a grammar, followed token by token.

A grammar is a JSON schema, a regular expression or a context-free grammar in the Lark notation of
llguidance (MIT), the library that turns it into the set of tokens that may come next. In Lark,
text never matches a control or markup token; ``<[id]>`` stands for one. Where the grammar is
complete, the tokens that end a turn are allowed, and where nothing more may follow, only they are.

The set of the next token is computed in a thread of its own from the moment a token is chosen,
while the model's forward pass for that token runs: the library works without Python's global lock.
"""

import json
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from engine.errors import EngineError
from engine.tokenizer import Tokenizer


class GrammarError(EngineError):
    """A grammar that can't be used: wrong, or beyond what can be enforced."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar in the notation of the library; made by the functions below."""

    text: str

    @classmethod
    def lark(cls, text: str) -> Self:
        """Return a context-free grammar that begins at its rule ``start``."""
        return cls(_library().LLMatcher.grammar_from_lark(text))

    @classmethod
    def regex(cls, pattern: str) -> Self:
        """Return the language of a whole regular expression (syntax of Rust's regex crate)."""
        return cls(_library().LLMatcher.grammar_from_regex(pattern))

    @classmethod
    def json_schema(cls, schema: dict[str, Any] | bool) -> Self:
        """Return the JSON texts that a schema allows.

        Raises:
            GrammarError: the schema is no JSON schema.
        """
        return cls.lark(f"start: %json {schema_text(schema)}")


def schema_text(schema: Any) -> str:
    """Return a JSON schema as it stands in a Lark grammar, in one line.

    Raises:
        GrammarError: it is neither an object nor a boolean.
    """
    if isinstance(schema, bool):
        # Spelled out: the notation takes objects only. Nothing matches an empty choice.
        schema = {} if schema else {"anyOf": []}
    if not isinstance(schema, dict):
        raise GrammarError(
            f"a JSON schema is {type(schema).__name__}, expected an object",
            "Write it as an object, {} for anything.",
        )
    return json.dumps(schema, ensure_ascii=True)


def check_grammar(grammar: Grammar) -> None:
    """Look at a grammar before there is a vocabulary.

    Raises:
        GrammarError: it is wrong, or uses something that can't be enforced.
    """
    problem = _library().LLMatcher.validate_grammar(grammar.text)
    if problem:
        raise GrammarError(_first_line(problem), "Correct it, or leave out what it can't express.")


class GrammarState(Protocol):
    """A grammar together with the tokens it has seen."""

    def allowed(self) -> np.ndarray:
        """Which tokens may come next, [V] bool."""

    def accept(self, token_id: int) -> None:
        """Take a token that was chosen. Returns at once."""


class GrammarCompiler:
    """Turns grammars into states for one vocabulary. Making one takes a second for a large
    vocabulary, so it is made once per model."""

    def __init__(self, tokenizer: Tokenizer, stop_ids: Collection[int]) -> None:
        """Describe a vocabulary to the library.

        Args:
            tokenizer: The vocabulary.
            stop_ids: Tokens that end a turn; all are allowed where a grammar is complete.
        """
        self.n_vocab = tokenizer.n_vocab
        self.stop_ids = np.array(sorted(stop_ids), np.int64)
        library = _library()
        self._vocabulary = library.LLTokenizer(
            library.TokenizerWrapper(_Vocabulary(tokenizer, int(self.stop_ids[0]))),
            n_vocab=tokenizer.n_vocab,
            eos_token=[int(i) for i in self.stop_ids],
        )

    def start(self, grammar: Grammar) -> "LibraryState":
        """Return a state at the beginning of a grammar.

        Raises:
            GrammarError: the grammar is wrong, or uses something that can't be enforced.
        """
        matcher = _library().LLMatcher(self._vocabulary, grammar.text, log_level=0)
        if matcher.is_error():
            raise GrammarError(
                f"the grammar can't be used: {_first_line(matcher.get_error())}",
                "Correct it, or leave out what it can't express.",
            )
        return LibraryState(matcher, self.n_vocab, self.stop_ids)


class LibraryState:
    """A GrammarState. Used by one thread at a time."""

    def __init__(self, matcher: Any, n_vocab: int, stop_ids: np.ndarray) -> None:
        self._matcher = matcher
        self._n_vocab = n_vocab
        self._stop_ids = stop_ids
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ds4-grammar")
        self._next: Future[np.ndarray] = self._thread.submit(self._compute, None)

    def allowed(self) -> np.ndarray:
        """Which tokens may come next, [V] bool. Waits until that is known.

        Raises:
            EngineError: a token was accepted that was not allowed, or the grammar became too
                complex for the library.
        """
        return self._next.result()

    def accept(self, token_id: int) -> None:
        """Take a token that was chosen."""
        self._next.result()  # an error of the step before is not overtaken
        self._next = self._thread.submit(self._compute, token_id)

    @property
    def is_complete(self) -> bool:
        """Whether the tokens so far are a whole sentence of the grammar."""
        allowed = self.allowed()
        return bool(allowed[self._stop_ids].any()) or self._matcher.is_stopped()

    def _compute(self, token_id: int | None) -> np.ndarray:
        if token_id is not None and not self._matcher.is_stopped():
            self._matcher.consume_token(token_id)
        words = np.zeros((self._n_vocab + 31) // 32, np.int32)
        if not self._matcher.is_error():
            self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if self._matcher.is_error():
            raise EngineError(
                f"the grammar can't be followed: {_first_line(self._matcher.get_error())}",
                "Use a simpler grammar.",
            )
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        return bits[: self._n_vocab].astype(bool)


class _Vocabulary:
    """What the library asks of a tokenizer."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, eos_id: int) -> None:
        self.eos_token_id = eos_id
        self._tokenizer = tokenizer
        self.tokens = [tokenizer.render([i]) for i in range(tokenizer.n_vocab)]
        self.special_token_ids = [
            i for i, data in enumerate(self.tokens) if _is_special(tokenizer, i, data)
        ]

    def __call__(self, data: bytes) -> list[int]:
        return self._tokenizer.encode(data.decode("utf-8", "replace"))


def _is_special(tokenizer: Tokenizer, token_id: int, data: bytes) -> bool:
    if not tokenizer.token_bytes(token_id):
        return True
    text = data.decode("utf-8", "replace")
    return tokenizer.has_control(text) and tokenizer.control_id(text) == token_id


def _first_line(text: str) -> str:
    return " ".join(text.strip().split("\n")[0].split())


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise GrammarError(
            "grammars need the package llguidance, which is not installed",
            "Install it: pip install llguidance",
        ) from error
    return llguidance
