"""Logits of every position of a text, for comparing devices, precisions and programs."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ds4agent.errors import Ds4Error
from engine.engine import Engine


def read_tokens(path: Path) -> list[int]:
    """Read a JSON list of token ids.

    Raises:
        Ds4Error: the file can't be read or holds something else.
    """
    try:
        tokens = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Ds4Error(f"can't read token ids from {path}: {error}", "Give a JSON list.") from error
    is_list = isinstance(tokens, list) and tokens
    if not is_list or any(type(token) is not int or token < 0 for token in tokens):
        raise Ds4Error(
            f"{path} is not a list of token ids", "Give a JSON list of at least one whole number."
        )
    return tokens


def logits_of(
    engine: Engine, tokens: Sequence[int], n_prefill: int, *, cache_rounding: bool = True
) -> np.ndarray:
    """Compute the logits after every token.

    Args:
        engine: A loaded model.
        tokens: Token ids [T].
        n_prefill: The first so many are read in one call of the network; the others one by one,
            as in decoding.
        cache_rounding: Off: cached rows of DeepSeek V4 stay as computed.

    Returns:
        [T, V] float32.

    Raises:
        Ds4Error: a token id is not in the vocabulary, or there are fewer tokens than ``n_prefill``.
        ContextFull: there are more tokens than the context holds.
        ModelFileError: rounding is to be off, and the family has none.
    """
    n_vocab = engine.info.n_vocab
    if max(tokens) >= n_vocab:
        raise Ds4Error(
            f"token id {max(tokens)} is outside of 0 to {n_vocab - 1}",
            "Use ids of this model's own tokenizer.",
        )
    if not 0 <= n_prefill <= len(tokens):
        raise Ds4Error(
            f"--prefill {n_prefill}, but there are {len(tokens)} tokens",
            f"Give a number from 0 to {len(tokens)}.",
        )
    return engine.logits_of(tokens, n_prefill, debug_cache_rounding=cache_rounding)


def write(path: Path, logits: np.ndarray) -> None:
    """Write an .npy file.

    Raises:
        Ds4Error: it can't be written.
    """
    try:
        with path.open("wb") as file:
            np.save(file, logits)
    except OSError as error:
        raise Ds4Error(f"can't write {path}: {error.strerror}", "Name another --out.") from error
