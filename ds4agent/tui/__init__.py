"""The full-screen front end, built on Textual.

Read in this order: ``app`` (composition and keys), ``feed`` (worker queue to event batches),
``controller`` (events to widget calls), ``approval_keys`` and the files of ``widgets``, then
``plain`` (untrusted text), ``theme`` and ``app.tcss`` (looks).
"""

__all__ = ["app", "controller", "feed", "plain", "theme", "widgets"]
