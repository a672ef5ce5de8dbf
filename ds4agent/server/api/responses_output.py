"""The output items of the Responses interface: what each looks like, and the events inside it.

``written(status)`` is an item as JSON. ``opening``, ``fill`` and ``closing`` return the events, by
name and fields, between its ``output_item.added`` and its ``output_item.done``.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from ds4agent.server.api.request import CalledAs
from ds4agent.server.api.responses_items import seal_thinking

Events = list[tuple[str, dict[str, Any]]]
_CALL_PREFIXES = {"function": "fc", "custom": "ctc", "tool_search": "tsc"}


@dataclass
class TextItem:
    """Thinking or a message: an item with one part of text.

    Attributes:
        kind: ``reasoning`` or ``message``.
        reply: Id of the reply, without its prefix.
        index: Place in the output.
        seals: Thinking also goes out in a form that clients send back; otherwise the field for it
            has a name that says nothing.
        status: ``in_progress``, ``completed`` or ``incomplete``.
        phase: Of a message: ``commentary`` where a call follows it.
    """

    kind: str
    reply: str
    index: int
    seals: bool = False
    status: str = "in_progress"
    phase: str = "final_answer"
    texts: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"{'rs' if self.kind == 'reasoning' else 'msg'}_{self.reply}_{self.index}"

    def written(self, status: str) -> dict[str, Any]:
        content = [] if status == "in_progress" else [self._part("".join(self.texts))]
        head = {"type": self.kind, "id": self.id, "status": status}
        if self.kind == "message":
            return {**head, "role": "assistant", "phase": self.phase, "content": content}
        sealed = f"{self.reply}-{self.index}"
        if self.seals and content:
            sealed = seal_thinking(content[0]["text"])
        return {**head, "content": content, "summary": [], "encrypted_content": sealed}

    def opening(self) -> Events:
        return [("response.content_part.added", {**self._place(), "part": self._part("")})]

    def fill(self, text: str) -> Events:
        self.texts.append(text)
        return [(f"{self._event}.delta", {**self._place(), "delta": text, **self._more()})]

    def closing(self) -> Events:
        text = "".join(self.texts)
        return [
            (f"{self._event}.done", {**self._place(), "text": text, **self._more()}),
            ("response.content_part.done", {**self._place(), "part": self._part(text)}),
        ]

    @property
    def _event(self) -> str:
        is_thinking = self.kind == "reasoning"
        return "response.reasoning_text" if is_thinking else "response.output_text"

    def _part(self, text: str) -> dict[str, Any]:
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}

    def _more(self) -> dict[str, Any]:
        return {} if self.kind == "reasoning" else {"logprobs": []}

    def _place(self) -> dict[str, Any]:
        return {"content_index": 0, "item_id": self.id, "output_index": self.index}


@dataclass
class CallItem:
    """A call. The input of a custom tool is known when the JSON around it is complete, and goes
    out at once; the arguments of a tool search are an object and have no events.

    Attributes:
        called_as: What kind of call it is, and its name there.
        call_id: What its result refers to.
        reply, index, status: As of a text.
    """

    called_as: CalledAs
    call_id: str
    reply: str
    index: int
    status: str = "in_progress"
    parts: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"{_CALL_PREFIXES[self.called_as.kind]}_{self.reply}_{self.index}"

    def written(self, status: str) -> dict[str, Any]:
        called_as = self.called_as
        head = {"id": self.id, "status": status, "call_id": self.call_id}
        match called_as.kind:
            case "custom":
                more = {"name": called_as.name, "input": self._input()}
                return {"type": "custom_tool_call", **head, **more}
            case "tool_search":
                more = {"execution": "client", "arguments": self._object()}
                return {"type": "tool_search_call", **head, **more}
        name: dict[str, Any] = {"name": called_as.name}
        if called_as.namespace:
            name["namespace"] = called_as.namespace
        return {"type": "function_call", **head, **name, "arguments": "".join(self.parts)}

    def opening(self) -> Events:
        return []

    def fill(self, text: str) -> Events:
        self.parts.append(text)
        if self.called_as.kind != "function":
            return []
        return [("response.function_call_arguments.delta", {**self._place(), "delta": text})]

    def closing(self) -> Events:
        place = self._place()
        match self.called_as.kind:
            case "custom":
                text = self._input()
                return [
                    ("response.custom_tool_call_input.delta", {**place, "delta": text}),
                    ("response.custom_tool_call_input.done", {**place, "input": text}),
                ]
            case "tool_search":
                return []
        arguments = "".join(self.parts)
        return [("response.function_call_arguments.done", {**place, "arguments": arguments})]

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self.index}

    def _input(self) -> str:
        value = self._object().get("input", "")
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def _object(self) -> dict[str, Any]:
        """Read the arguments; an unfinished call has none."""
        try:
            value = json.loads("".join(self.parts))
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


OutputItem = TextItem | CallItem
