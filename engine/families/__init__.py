"""The networks. A family is a folder with its configuration, model, weights and cache.

Reading order: ``base`` (the protocols), ``llama.model``, ``registry``, ``loading``, ``metadata``.
"""

__all__ = ["base", "llama", "loading", "metadata", "registry"]
