"""Confining the commands a model chooses.

Reading order: scan (what to protect), policy (the rules as data), mechanism (what each way to
translation), bubblewrap (the mechanism), masks and aftermath (traces in the workspace), watch
(using up the machine), run (the only place that starts a command), probe (what works here).
"""

__all__ = [
    "aftermath",
    "bubblewrap",
    "linux_bwrap",
    "masks",
    "policy",
    "probe",
    "run",
    "scan",
    "seccomp",
    "watch",
]
