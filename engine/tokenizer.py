"""Text to token ids and back, from the vocabulary inside a model file.

The scheme is byte-level BPE: text is cut into pieces (``engine.pretokenizer``), the UTF-8 bytes of
a piece become one printable character each, and neighbours are merged, the pair with the lowest
rank first. So every id stands for exact bytes, and decoding gives the text back.

Three kinds of tokens are kept apart, because a conversation is only as safe as its turn marks:

* *plain* tokens: what ``encode`` gives for text, whatever the text says;
* *control* tokens (``<|im_end|>``): only ever placed by id, and without bytes in the output;
* *markup* tokens (``<tool_call>``, ``<think>``): placed by id like control tokens, but the model
  writes them as part of its answer, so they do have bytes.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Self

from tokenizers import Tokenizer as _Library
from tokenizers import models

from engine.errors import ModelFileError
from engine.gguf_file import GgufFile
from engine.pretokenizer import WHOLE_PIECE_FIRST, pre_tokenizer_for
from engine.text_cuts import safe_parts

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 3, 4, 5, 6  # GGUF token types
_HINT = "Get another conversion of the model."
PARALLEL_FROM = 1 << 15  # characters; below, handing texts to threads costs more than it gains
_PART = 1 << 13  # characters of a part of a long text: small against a text, large against a call

# Files don't agree whether these are control or user defined; they are output that is parsed.
_MARKUP = frozenset(
    {
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "</tool_response>",
        "｜DSML｜",
    }
)
# Tokens that end a turn in some model. A file names one of them as its end; a chat model may
# write another.
TURN_ENDS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
    "</s>",
)


def _byte_characters() -> list[str]:
    """Return the character that stands for each byte, [256].

    Printable Latin-1 bytes stand for themselves; the others, in order, for the code points from
    256 on. Published with GPT-2 and the same in every byte-level model since.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


_CHARACTERS = _byte_characters()
_BYTE_OF = {character: byte for byte, character in enumerate(_CHARACTERS)}
_UTF8_BYTES = frozenset({*range(0x00, 0xC0), *range(0xC2, 0xF5)})  # all that occur in UTF-8


class Tokenizer:
    """The vocabulary of one model.

    Attributes:
        n_vocab: Number of ids, those of unused entries included.
        bos_id: Token that opens a text, if the model has one.
        add_bos: Whether the model expects ``bos_id`` before a text.
        eos_ids: Tokens that end a turn or a text; sampling stops at any of them.
    """

    def __init__(
        self,
        tokens: list[str],
        merges: list[str],
        token_types: list[int],
        pre: str,
        eos_id: int,
        bos_id: int | None = None,
        add_bos: bool = False,
    ) -> None:
        """Build a tokenizer from the lists of a model file.

        Args:
            tokens: Text of each id, [V], bytes written as characters.
            merges: ``"left right"``, best rank first.
            token_types: GGUF type of each id, [V]: 1 normal, 3 control, 4 user defined,
                5 unused, 6 byte.
            pre: Name of the pre-tokenizer, a ``tokenizer.ggml.pre`` value.
            eos_id: The end token that the file names.
            bos_id: The start token, if any.
            add_bos: Whether a text starts with it.

        Raises:
            ModelFileError: the lists don't fit together, or ``pre`` is unknown.
        """
        if len(token_types) != len(tokens):
            raise ModelFileError(
                f"the vocabulary has {len(tokens)} tokens but {len(token_types)} token types", _HINT
            )
        for name, token_id in (("end", eos_id), ("start", bos_id)):
            if token_id is not None and not 0 <= token_id < len(tokens):
                raise ModelFileError(
                    f"the {name} token is {token_id}, expected below {len(tokens)}", _HINT
                )
        self.n_vocab = len(tokens)
        self.bos_id = bos_id
        self.add_bos = add_bos and bos_id is not None
        self._tokens = tokens
        self._types = token_types
        self._bytes: dict[int, bytes] = {}
        self._special = {
            text: token_id
            for token_id, (text, kind) in enumerate(zip(tokens, token_types, strict=True))
            if kind in (_CONTROL, _USER_DEFINED)
        }
        ends = (self._special[text] for text in TURN_ENDS if text in self._special)
        self.eos_ids = frozenset({eos_id, *ends})
        plain = {
            text: token_id
            for token_id, (text, kind) in enumerate(zip(tokens, token_types, strict=True))
            if kind == _NORMAL and text not in self._special
        }
        self._missing = bytes(b for b in _UTF8_BYTES if _CHARACTERS[b] not in plain)
        self._library = _Library(
            models.BPE(
                vocab=plain,
                merges=_merge_pairs(merges, plain, set(tokens)),
                ignore_merges=pre in WHOLE_PIECE_FIRST,
            )
        )
        self._library.pre_tokenizer = pre_tokenizer_for(pre)

    @classmethod
    def from_gguf(cls, gguf: GgufFile) -> Self:
        """Build the tokenizer of a model file.

        Raises:
            ModelFileError: the file has no byte-level BPE vocabulary, or it is inconsistent.
        """
        metadata = gguf.metadata
        model = metadata.get("tokenizer.ggml.model")
        if model != "gpt2":
            raise ModelFileError(
                f"{gguf.path.name} has a tokenizer of kind {model!r}, expected 'gpt2' "
                "(byte-level BPE)",
                "Use a model with a byte-level BPE vocabulary, such as Qwen 2.5 or SmolLM2.",
            )

        def entry(name: str, kind: type, default: object = None) -> object:
            key = f"tokenizer.ggml.{name}"
            value = metadata.get(key, default)
            if not isinstance(value, kind):
                raise ModelFileError(f"{gguf.path.name} has no usable {key}", _HINT)
            return value

        tokens = _list_of(entry("tokens", list), str, "tokens", gguf)
        types = entry("token_type", list, [_NORMAL] * len(tokens))
        bos_id = metadata.get("tokenizer.ggml.bos_token_id")
        return cls(
            tokens,
            _list_of(entry("merges", list), str, "merges", gguf),
            _list_of(types, int, "token_type", gguf),
            entry("pre", str, "default"),
            entry("eos_token_id", int),
            bos_id if isinstance(bos_id, int) else None,
            metadata.get("tokenizer.ggml.add_bos_token") is True,
        )

    def encode(self, text: str) -> list[int]:
        """Encode plain text. The result never holds a control or markup token.

        A character that the vocabulary can't spell, and half a surrogate pair, become U+FFFD.
        Nothing else changes: no normalisation, no added space, no start token.
        """
        return self._encode_all([text])[0]

    def encode_segments(self, segments: Iterable[str | int]) -> list[int]:
        """Encode text and ready ids in turn. Text pieces are encoded independently, long ones on
        all cores; the ids are those of one after the other."""
        parts = list(segments)
        encoded = iter(self._encode_all([part for part in parts if isinstance(part, str)]))
        ids: list[int] = []
        for part in parts:
            if isinstance(part, str):
                ids += next(encoded)
            else:
                ids.append(part)
        return ids

    def encode_rendered(self, text: str) -> list[int]:
        """Encode what ``render`` gave: names of control and markup tokens become these tokens.

        So text that only spells such a name is taken for the token. Use the ids themselves where
        they are known.
        """
        names = sorted(self._special, key=len, reverse=True)
        parts = re.split("|".join(f"({re.escape(name)})" for name in names), text) if names else []
        return self.encode_segments(
            self._special.get(part, part) for part in parts or [text] if part
        )

    def _encode_all(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text."""
        texts = [self._spellable(text) for text in texts]
        if sum(map(len, texts)) < PARALLEL_FROM:
            return [self._library.encode(text, add_special_tokens=False).ids for text in texts]
        parts = [list(safe_parts(text, _PART)) for text in texts]
        batch = self._library.encode_batch_fast(
            [part for of_text in parts for part in of_text], add_special_tokens=False
        )
        encodings = iter(batch)
        return [[i for _ in of_text for i in next(encodings).ids] for of_text in parts]

    def _spellable(self, text: str) -> str:
        try:
            raw = text.encode("utf-8")
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            raw = text.encode("utf-8")
        if self._missing and len(raw.translate(None, self._missing)) < len(raw):
            missing = set(self._missing)
            text = "".join("\ufffd" if missing & set(c.encode()) else c for c in text)
        return text

    def control_id(self, text: str) -> int:
        """Return the id of a control or markup token.

        Raises:
            ModelFileError: the vocabulary has no such token.
        """
        token_id = self._special.get(text)
        if token_id is None:
            raise ModelFileError(
                f"the vocabulary has no control token {text}",
                "Use a model whose chat format is supported.",
            )
        return token_id

    def has_control(self, text: str) -> bool:
        """Whether ``text`` is a control or markup token of this vocabulary."""
        return text in self._special

    def name_placeholder(self, placeholder: str, name: str) -> None:
        """Give a control token that has had no use the name it has in a later model.

        Raises:
            ModelFileError: the vocabulary has no such place-holder.
        """
        token_id = self.control_id(placeholder)
        del self._special[placeholder]
        self._special[name] = token_id
        self._tokens = [*self._tokens]
        self._tokens[token_id] = name
        self._bytes.pop(token_id, None)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that a token adds to the output: ``b""`` for control tokens."""
        known = self._bytes.get(token_id)
        if known is None:
            text, kind = self._tokens[token_id], self._types[token_id]
            is_silent = kind in (_CONTROL, _UNUSED) and text not in _MARKUP
            known = self._bytes[token_id] = b"" if is_silent else self._spell(token_id)
        return known

    def ids_beginning_with(self, characters: bytes) -> tuple[int, ...]:
        """Return the tokens that begin with one of these ASCII characters, blanks before them not
        counted, or that are nothing but blanks. Looks at the whole vocabulary."""
        starts = tuple(bytes([character]) for character in characters)
        texts = ((i, self.token_bytes(i)) for i in range(self.n_vocab))
        return tuple(
            i
            for i, text in texts
            if text and (not text.strip() or text.lstrip().startswith(starts))
        )

    def render(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of a token sequence, control tokens written out by name."""
        return b"".join(self.token_bytes(i) or self._spell(i) for i in ids)

    def _spell(self, token_id: int) -> bytes:
        text, kind = self._tokens[token_id], self._types[token_id]
        if kind == _BYTE and len(text) == 6 and text.startswith("<0x"):
            return bytes([int(text[3:5], 16)])
        if kind != _NORMAL:
            return text.encode("utf-8", "replace")
        # A character outside the byte mapping can only come from a token added as it stands.
        return b"".join(
            bytes([_BYTE_OF[c]]) if c in _BYTE_OF else c.encode("utf-8", "replace") for c in text
        )


def _list_of(value: object, kind: type, name: str, gguf: GgufFile) -> list:
    if not isinstance(value, list) or (value and not all(type(item) is kind for item in value)):
        raise ModelFileError(
            f"tokenizer.ggml.{name} of {gguf.path.name} is not a list of {kind.__name__}", _HINT
        )
    return value


def _merge_pairs(
    merges: list[str], plain: dict[str, int], every: set[str]
) -> list[tuple[str, str]]:
    """Split the merges, leaving out those that would build or use a token that isn't plain."""
    pairs = []
    for merge in merges:
        left, _, right = merge.partition(" ")
        if left in plain and right in plain and left + right in plain:
            pairs.append((left, right))
        elif not (right and {left, right, left + right} <= every):
            raise ModelFileError(
                f"merge {merge[:80]!r} uses a token that the vocabulary does not have", _HINT
            )
    return pairs
