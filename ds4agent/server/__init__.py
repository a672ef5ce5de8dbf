"""``ds4-server``: the engine behind other people's clients, over HTTP.

``api`` is what the interfaces say, as plain functions of data; it opens no socket.
"""

__all__ = ["api"]
