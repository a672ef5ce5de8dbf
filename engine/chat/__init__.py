"""Chat formats: how a conversation becomes tokens, and sampled bytes become events.

Reading order: ``format`` (the protocol and its plain data), ``segments`` (text and control tokens
kept apart), ``chatml``, ``object_scanner`` and ``chatml_parser`` (Qwen, SmolLM2), ``deepseek_v4``
and ``dsml_parser`` (DeepSeek V4), ``registry`` (which format a model file has).
"""

__all__ = [
    "chatml",
    "chatml_parser",
    "deepseek_v4",
    "dsml_parser",
    "format",
    "object_scanner",
    "registry",
    "segments",
]
