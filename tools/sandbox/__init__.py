"""Confining the commands a model chooses.

Reading order: scan (what to protect), policy (the rules as data), mechanism (what each way to
confine provides); bubblewrap with linux_bwrap, and landlock with landlock_rules and
landlock_launcher (the two ways), both with seccomp; masks and aftermath (traces in the workspace),
watch (using up the machine), running (one started command), run (the only place that starts one),
probe (what works here). macos_seatbelt is text that nothing starts yet.
"""

__all__ = [
    "aftermath",
    "bubblewrap",
    "landlock",
    "landlock_launcher",
    "landlock_rules",
    "linux_bwrap",
    "macos_seatbelt",
    "masks",
    "mechanism",
    "policy",
    "probe",
    "run",
    "running",
    "scan",
    "seccomp",
    "watch",
]
