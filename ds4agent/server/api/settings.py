"""The settings that the interfaces share: sampling, limits, stop texts, thinking."""

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.fields import Fields, wrong
from ds4agent.server.api.request import MAX_OUTPUT, MIN_P, Sampling, ServedModel

_MAX_STOPS = 16  # of deepseek-recipe; OpenAI's own limit is 4
_MAX_SEED = 2**63
_LEAST_TOP_P = 1e-9  # 0 asks for the likeliest token only
_TOP_P_WITH_TOOLS = 0.95  # what DeepSeek V4 was trained with while it thinks and may call
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SAME_EFFORT = {"minimal": "low", "medium": "high"}
_THINKING_TYPES = {
    "enabled": True,
    "adaptive": True,
    "auto": True,
    "between_tools": True,
    "disabled": False,
}
# Names under which DeepSeek's own service offers one model with and without thinking.
_THINKING_NAMES = {"deepseek-chat": False, "deepseek-reasoner": True}


def read_sampling(fields: Fields, model: ServedModel, *, thinking: bool, tools: bool) -> Sampling:
    """Read how to choose tokens. Checked also where the model's trained values take their place."""
    temperature = fields.number("temperature", 1.0, 0, 2)
    top_p = fields.number("top_p", 1.0, 0, 1)
    top_k = fields.integer("top_k", -1, 2**31) or 0
    min_p = fields.number("min_p", MIN_P, 0, 1)
    seed = fields.integer("seed", -(2**64), 2**64)
    if thinking and model.has_trained_sampling:
        temperature, top_p, top_k, min_p = 1.0, _TOP_P_WITH_TOOLS if tools else 1.0, 0, 0.0
    return Sampling(
        temperature=temperature,
        top_p=max(top_p, _LEAST_TOP_P),
        top_k=max(top_k, 0),
        min_p=min_p,
        seed=None if seed is None or seed < 0 else seed % _MAX_SEED,
    )


def read_limit(fields: Fields, *names: str) -> int | None:
    """Read the longest answer, in tokens, under the first of some names that is there."""
    limits = [fields.integer(name, 1, MAX_OUTPUT) for name in names]
    return next((limit for limit in limits if limit is not None), None)


def read_stop(fields: Fields, name: str) -> tuple[str, ...]:
    """Read the texts that end an answer: one, or a list."""
    value = fields.get(name)
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list):
        raise wrong(fields.at(name), value, "a text or a list of texts")
    for index, stop in enumerate(stops):
        if not isinstance(stop, str):
            raise wrong(f"{fields.at(name)}[{index}]", stop, "a text")
    if len(stops) > _MAX_STOPS:
        raise ApiError(f"Stop string array too long: {len(stops)}", param=fields.at(name))
    return tuple(stop for stop in stops if stop)


def read_thinking_switch(fields: Fields) -> bool | None:
    """Read ``thinking``: true or false, or an object with a type; None where nothing is said."""
    value = fields.get("thinking")
    if value is None or isinstance(value, bool):
        return value
    kind = Fields(value, fields.at("thinking")).one_of("type", tuple(_THINKING_TYPES))
    return _THINKING_TYPES[kind]


def read_effort(fields: Fields | None, name: str) -> str | None:
    """Read an effort, None where nothing is said."""
    if fields is None or name not in fields:
        return None
    return fields.one_of(name, EFFORTS)


def resolve_thinking(
    model: ServedModel, asked_model: str, switch: bool | None, effort: str | None
) -> tuple[bool, str | None]:
    """Decide whether to think, and how thoroughly.

    Returns:
        Whether to think, and the effort: None without thinking, and ``high`` where nothing is
        said, which each checkpoint reads as its own default.
    """
    if switch is None and effort is not None:
        switch = effort != "none"
    if switch is None:
        switch = _THINKING_NAMES.get(asked_model, model.thinks_by_default)
    if not switch or effort == "none" or not model.can_think:
        return False, None
    effort = effort or "high"
    return True, _SAME_EFFORT.get(effort, effort)
