"""Pre-tokenizers: how a byte-level BPE model cuts text into pieces before it merges.

A model was trained with one exact set of patterns; with another, ids come out that it has hardly
seen. The GGUF key ``tokenizer.ggml.pre`` names the set. Each set is a list of patterns applied in
turn: a pattern cuts every piece of the one before into its matches and what lies between them.
The patterns are facts, as published in the models' tokenizer files and in llama.cpp's table.
"""

from collections.abc import Sequence

from tokenizers import Regex, pre_tokenizers

from engine.errors import ModelFileError

_ENGLISH = r"'s|'t|'re|'ve|'m|'ll|'d"
GPT2_PATTERN = rf"{_ENGLISH}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"


def _cl100k(numbers: str) -> str:
    """Return the pattern that Qwen 2 and Llama 3 share but for the length of a number."""
    return (
        rf"(?i:{_ENGLISH})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",  # CJK ideographs, hiragana, katakana
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
)

_PATTERNS: dict[str, tuple[str, ...]] = {
    "gpt-2": (GPT2_PATTERN,),
    "smollm": (r"\p{N}", GPT2_PATTERN),
    "qwen2": (_cl100k(r"\p{N}"),),
    "llama-bpe": (_cl100k(r"\p{N}{1,3}"),),
    "deepseek-v3": _DEEPSEEK_V3,
    "default": (r"[\p{P}\$\+<=>\^~\|]+", GPT2_PATTERN, r"\p{N}+", "[0-9][0-9][0-9]"),
}
_ALIASES = {
    "gpt2": "gpt-2",
    "deepseek-r1-qwen": "qwen2",
    "llama3": "llama-bpe",
    "llama-v3": "llama-bpe",
    "joyai-llm": "deepseek-v3",  # what DeepSeek V4 files say
}

# Llama 3 looks a whole piece up in the vocabulary before it merges; its tokenizer file says so.
WHOLE_PIECE_FIRST = frozenset({"llama-bpe", "llama3", "llama-v3"})


def name_of_patterns(patterns: Sequence[str]) -> str:
    """Return the name of a set of patterns, as a tokenizer file lists them; empty if unknown."""
    known = {tuple(map(_as_written, value)): name for name, value in _PATTERNS.items()}
    return known.get(tuple(map(_as_written, patterns)), "")


def _as_written(pattern: str) -> str:
    # The same class of kana and ideographs is published with and without escapes.
    return pattern.replace("\\r", "\r").replace("\\n", "\n")


def pre_tokenizer_for(name: str) -> pre_tokenizers.PreTokenizer:
    """Build the pre-tokenizer of a ``tokenizer.ggml.pre`` value, byte mapping included.

    Raises:
        ModelFileError: the name is not known.
    """
    patterns = _PATTERNS.get(_ALIASES.get(name, name))
    if patterns is None:
        known = ", ".join(sorted([*_PATTERNS, *_ALIASES]))
        raise ModelFileError(
            f"the model's pre-tokenizer {name!r} is unknown, expected one of: {known}",
            "Use another model, or ask for this one to be supported.",
        )
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*splits, to_bytes])
