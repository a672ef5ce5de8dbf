"""Model files, networks, tokenizer, chat formats and sampling: everything that makes tokens.

Reading order: ``errors``, ``state``, ``engine``, ``session``, ``families``, ``gguf_file``,
``gguf_metadata``, ``tokenizer``, ``pretokenizer``, ``sampling_options``, ``sampler``, ``chat``,
``memory``.
"""

__all__ = [
    "chat",
    "engine",
    "errors",
    "families",
    "gguf_file",
    "gguf_metadata",
    "memory",
    "pretokenizer",
    "sampler",
    "sampling_options",
    "session",
    "state",
    "tokenizer",
]
