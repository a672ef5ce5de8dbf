"""Reading the vocabulary of a ``tokenizer.json``, the file that models are published with.

It holds what the tokenizer keys of a GGUF file hold, in other words. A normaliser that the file
asks for is not applied: files and commands must reach the model byte for byte, and GGUF files of
the same models know none either.
"""

import json
from pathlib import Path
from typing import Any

from engine.errors import ModelFileError
from engine.pretokenizer import GPT2_PATTERN, name_of_patterns
from engine.tokenizer import TURN_ENDS, Tokenizer

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5  # GGUF token types
_BOS = ("<｜begin▁of▁sentence｜>", "<|begin_of_text|>")
_HINT = "Use the tokenizer.json of a model with a byte-level BPE vocabulary."


def tokenizer_from_json(path: Path) -> Tokenizer:
    """Build the tokenizer of a ``tokenizer.json``.

    Raises:
        ModelFileError: it can't be read, or it is no byte-level BPE vocabulary that is known.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be read: {error.strerror or error}", "Check the path."
        ) from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path.name} is not valid JSON: {error}", _HINT) from error
    try:
        return _tokenizer(data, path.name)
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(f"{path.name} is no tokenizer.json: {error!r}", _HINT) from error


def _tokenizer(data: dict[str, Any], name: str) -> Tokenizer:
    model = data["model"]
    if model.get("type", "BPE") != "BPE" or model.get("byte_fallback"):
        kind = "byte fallback" if model.get("byte_fallback") else repr(model["type"])
        raise ModelFileError(
            f"{name} has a tokenizer of kind {kind}, expected byte-level BPE", _HINT
        )
    patterns = _patterns(data["pre_tokenizer"])
    pre = name_of_patterns(patterns)
    if not pre:
        raise ModelFileError(
            f"the pre-tokenizer of {name} is unknown: {' then '.join(patterns)[:200]!r}",
            "Use another model, or ask for this one to be supported.",
        )
    texts = {token_id: text for text, token_id in model["vocab"].items()}
    types = dict.fromkeys(texts, _NORMAL)
    for added in data.get("added_tokens", ()):
        texts[added["id"]] = added["content"]
        types[added["id"]] = _CONTROL if added["special"] else _USER_DEFINED
    ids = range(max(texts) + 1)
    special = {texts[i]: i for i in ids if types.get(i) in (_CONTROL, _USER_DEFINED)}
    ends = [special[text] for text in TURN_ENDS if text in special]
    if not ends:
        raise ModelFileError(
            f"{name} has no end token, expected one of {', '.join(TURN_ENDS)}", _HINT
        )
    return Tokenizer(
        [texts.get(i, f"[unused {i}]") for i in ids],
        [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]],
        [types.get(i, _UNUSED) for i in ids],
        pre,
        ends[0],
        next((special[text] for text in _BOS if text in special), None),
    )


def _patterns(pre_tokenizer: dict[str, Any]) -> list[str]:
    """Return the patterns that cut a text, one after the other."""
    match pre_tokenizer["type"]:
        case "Sequence":
            return [p for part in pre_tokenizer["pretokenizers"] for p in _patterns(part)]
        case "Split":
            is_plain = pre_tokenizer["behavior"] == "Isolated" and not pre_tokenizer.get("invert")
            return [pre_tokenizer["pattern"].get("Regex", "") if is_plain else "?"]
        case "Digits":
            return [r"\p{N}" if pre_tokenizer["individual_digits"] else r"\p{N}+"]
        case "ByteLevel":
            return [GPT2_PATTERN] if pre_tokenizer.get("use_regex", True) else []
        case kind:
            return [kind]
