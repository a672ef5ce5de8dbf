"""The keys as the help shows them."""

KEYS = (
    ("Enter", "send; while the model is busy: queue"),
    ("Ctrl+J", "new line; also Shift+Enter, or a backslash before Enter"),
    ("Up, Down", "what was sent; Up in an empty composer takes a queued one back"),
    ("Alt+Up", "the queued messages: Enter edits one, Del drops it"),
    ("Tab", "take the suggestion: a command, its argument, a file behind @"),
    ("Ctrl+R", "search in what was sent"),
    ("Ctrl+G", "write in $EDITOR"),
    ("! command", "run it in your own shell; !! puts its output into the message"),
    ("Esc", "interrupt, or close a list"),
    ("Ctrl+C", "copy the selection, else interrupt, else clear, else quit (twice)"),
    ("Ctrl+D", "save and quit, in an empty composer"),
    ("Shift+Tab", "next mode: plan, ask, auto"),
    ("Ctrl+O", "open or fold: a pasted text at the cursor, else the last turn"),
    ("Page Up/Down", "scroll; End in an empty composer goes back to the end"),
    ("Ctrl+Up", "show earlier messages"),
    ("F1, F2", "help, settings"),
    ("F6", "leave the mouse to the terminal, or take it back"),
)
