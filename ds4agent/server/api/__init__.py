"""The public interfaces as data: bodies in, neutral requests out; neutral pieces in, events out.

Nothing here opens a socket, runs a model or waits. Reading order: ``request`` and ``output`` (the
two neutral forms), ``errors``, ``requests`` and ``replies`` (which pick the files of an interface),
``reading`` (from a chat parser to pieces), ``prompt``.
"""

__all__ = ["errors", "output", "prompt", "reading", "replies", "request", "requests"]
