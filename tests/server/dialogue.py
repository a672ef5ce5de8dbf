"""What the tests of official client packages say, and what the scripted model answers."""

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
DESCRIPTION = "Tells the weather."  # of the tool ``weather``
KEY = "secret"
_CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Graz"}}\n</tool_call>'
SCRIPT = {
    "replies": [],
    "answers": {
        "hello": "Good day to you.",
        "weather": f"I look.\n{_CALL}",
        "think": "<think>\nTwo and two.\n</think>\n\nFour.",
        "json of Ada": '{"name": "Ada", "age": 36}',
        "json please": '{"ok": true}',
        "<tool_response>": "It is sunny in Graz.",
        "stop": "one two three four",
        "four": "You said four.",
    },
    "controls": ["<think>", "</think>"],
}


def ask(text: str) -> list[dict[str, str]]:
    """Return a conversation of one message."""
    return [{"role": "user", "content": text}]
