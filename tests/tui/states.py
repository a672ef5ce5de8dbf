"""States of the screen that are worth a picture: events that lead to each of them."""

from ds4agent.events import (
    ApprovalNeeded,
    Event,
    GenerationProgress,
    HistoryEntry,
    Phase,
    PhaseChanged,
    QueueChanged,
    TextDelta,
    ThinkingDelta,
    ToolCallReady,
    ToolCallStarted,
    ToolFinished,
    ToolOutput,
    TurnStarted,
)
from tests.tui.fake_worker import ready

DIFF = """\
--- a/header.py
+++ b/header.py
@@ -1,6 +1,8 @@
 def read_header(stream):
     fields = {}
     for line in stream:
-        name, value = line.split(":")
-        fields[name] = value
+        if not line.strip():
+            break
+        name, _, value = line.partition(":")
+        fields[name.strip()] = value.strip()
     return fields
"""
ANSWER = """\
A value may hold **colons** of its own, so the line is cut at the first one only:

1. an empty line ends the header
2. names and values are `stripped`

| case | before | now |
|------|--------|-----|
| `a: b: c` | error | `b: c` |
| empty line | error | ends the header |

```python
assert read_header(["a: b: c", "", "body"]) == {"a": "b: c"}
```
"""
CONVERSATION = (
    HistoryEntry("user", "Why does read_header fail on a time?"),
    HistoryEntry("thinking", "The value holds a colon, so split gives three parts."),
    HistoryEntry("call", "", "edit", {"path": "header.py"}),
    HistoryEntry("result", "ok", "edit", ok=True, title="edit: header.py", diff=DIFF),
    HistoryEntry("assistant", ANSWER),
)
STATES: dict[str, tuple[Event, ...]] = {
    "conversation": (
        ready(history=CONVERSATION, title="Colons", context_tokens=2_300),
        PhaseChanged(Phase.IDLE),
    ),
    "working": (
        ready(),
        TurnStarted("Why does read_header fail on a time?"),
        PhaseChanged(Phase.GENERATING),
        ThinkingDelta("The value holds a colon, so split gives three parts."),
        TextDelta("I run the test first.\n\n"),
        ToolCallStarted("call-1", "bash"),
        ToolCallReady("call-1", "bash", {"command": "pytest -q"}, "bash: pytest -q"),
        ToolOutput("call-1", "..F.\n1 failed, 3 passed\n"),
        ToolFinished(
            "call-1", "bash", False, "bash: pytest -q", "..F.\n1 failed, 3 passed\n", "", 1, 2.4
        ),
        TextDelta("The third test has a time in its header. So the line must be **cut once"),
        GenerationProgress(214, 38.5, 1_640),
        QueueChanged(("then add a test for an empty value",)),
    ),
    "approval": (
        ready(),
        TurnStarted("Why does read_header fail on a time?"),
        TextDelta("I change how the line is cut."),
        ToolCallReady("call-1", "edit", {"path": "header.py"}, "edit: header.py", DIFF),
        PhaseChanged(Phase.APPROVAL),
        ApprovalNeeded("call-1", "edit", "edit: header.py", "", DIFF, False, "edit(header.py)"),
    ),
}
