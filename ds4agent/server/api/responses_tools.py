"""The tools of the Responses interface: functions, name spaces of them, custom tools, tool search.

A model knows functions only. A name space is written before the names of its functions; a custom
tool, whose input is text, becomes a function with one text ``input``. ``CalledAs`` says how to
write a call back. Tools that OpenAI's own service would run are left out: the model is not told of
them, so it doesn't call them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

from ds4agent.server.api import apply_patch
from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.fields import Fields
from ds4agent.server.api.request import CalledAs
from ds4agent.server.api.tools import check_names, read_function, read_name
from engine.chat.format import ToolSpec

TOOL_SEARCH = "tool_search"
_HOSTED = frozenset(
    {
        "apply_patch",
        "code_interpreter",
        "computer",
        "computer_use_preview",
        "file_search",
        "image_generation",
        "local_shell",
        "mcp",
        "programmatic_tool_calling",
        "shell",
    }
)
_INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


@dataclass(frozen=True, slots=True)
class DeclaredTools:
    """Tools as the model is shown them, and how those that are no plain functions are called."""

    tools: tuple[ToolSpec, ...]
    names: MappingProxyType[str, CalledAs]


def read_tools(fields: Fields) -> DeclaredTools:
    """Read ``tools``, and those that items of the input add or that past searches have found.

    Raises:
        ApiError: one is of no known kind, or two have the same name.
    """
    tools: list[ToolSpec] = []
    names: dict[str, CalledAs] = {}
    seen: set[str] = set()
    for item in fields.objects("tools"):
        for tool, called_as in _tool(item):
            tools.append(tool)
            if called_as is not None:
                names[tool.name] = called_as
    check_names(tools)
    seen.update(tool.name for tool in tools)
    for item in _of_items(fields):
        for tool, called_as in _tool(item):
            if tool.name not in seen:  # the same tool may come again
                seen.add(tool.name)
                tools.append(tool)
                if called_as is not None:
                    names[tool.name] = called_as
    return DeclaredTools(tuple(tools), MappingProxyType(names))


def _of_items(fields: Fields) -> Iterator[Fields]:
    if isinstance(fields.get("input"), list):
        for item in fields.objects("input"):
            if item.get("type") in ("additional_tools", "tool_search_output"):
                yield from item.objects("tools")


def _tool(fields: Fields) -> Iterator[tuple[ToolSpec, CalledAs | None]]:
    kind = fields.text("type")
    match kind:
        case "function":
            yield read_function(fields), None
        case "namespace":
            yield from _namespace(fields)
        case "custom":
            yield _custom(fields), CalledAs("custom", fields.text("name"))
        case "tool_search":
            yield (
                ToolSpec(
                    TOOL_SEARCH,
                    fields.text("description", "Search for more tools."),
                    read_function(
                        Fields({**fields.raw, "name": TOOL_SEARCH}, fields.where)
                    ).parameters,
                ),
                CalledAs(TOOL_SEARCH, TOOL_SEARCH),
            )
        case _ if kind not in _HOSTED and not kind.startswith("web_search"):
            raise ApiError(
                f"{fields.at('type')} is {kind[:80]!r}, expected function, custom or namespace.",
                param=fields.at("type"),
            )


def _namespace(fields: Fields) -> Iterator[tuple[ToolSpec, CalledAs | None]]:
    space = read_name(fields)
    for item in fields.objects("tools"):
        item.one_of("type", ("function",), "function")
        tool = read_function(item)
        whole = read_name(Fields({"name": space + tool.name}, item.where))
        yield (
            ToolSpec(whole, tool.description, tool.parameters),
            CalledAs("function", tool.name, space),
        )


def _custom(fields: Fields) -> ToolSpec:
    """Return a function with one text. Where the client has a grammar for it, the description
    says so."""
    name = read_name(fields)
    if name == apply_patch.NAME:
        return ToolSpec(name, apply_patch.DESCRIPTION, apply_patch.PARAMETERS)
    description = fields.text("description", "")
    form = fields.object("format")
    if form is not None and form.text("type", "text") == "grammar":
        syntax, definition = form.text("syntax", "lark"), form.text("definition")
        description += f"\n\nThe input must match this {syntax} grammar:\n{definition}"
    return ToolSpec(name, description.strip(), _INPUT)
