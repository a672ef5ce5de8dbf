"""Llama, Qwen2 and Qwen3: dense decoder-only transformers.

Reading order: ``model``, ``cache``, ``config``, ``rope``, ``weights``.
"""

__all__ = ["cache", "config", "model", "rope", "weights"]
