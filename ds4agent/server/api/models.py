"""What ``/v1/models`` says, to the clients of OpenAI's and of Anthropic's interfaces."""

from datetime import UTC, datetime
from typing import Any

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.request import MAX_OUTPUT, ServedModel

_PARAMETERS = (
    "tools tool_choice max_tokens temperature top_p top_k min_p stop seed stream reasoning_effort "
    "response_format"
).split()


def list_models(model: ServedModel, *, for_anthropic: bool = False) -> dict[str, Any]:
    """Return the list of models: the one that is loaded.

    Args:
        model: It.
        for_anthropic: The client is one of Anthropic's (it sends ``anthropic-version``).
    """
    if for_anthropic:
        return {
            "data": [_for_anthropic(model)],
            "has_more": False,
            "first_id": model.name,
            "last_id": model.name,
        }
    return {"object": "list", "data": [_for_openai(model)]}


def describe_model(model: ServedModel, name: str, *, for_anthropic: bool = False) -> dict[str, Any]:
    """Return one model by its id.

    Raises:
        ApiError: 404, it is not the loaded one.
    """
    if name != model.name:
        raise ApiError(
            f"There is no model {name[:80]!r}, this server has {model.name!r}.",
            404,
            param="model",
            code="model_not_found",
        )
    return _for_anthropic(model) if for_anthropic else _for_openai(model)


def _for_openai(model: ServedModel) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "ds4-agent",
        "name": model.name,
        "context_length": model.context_length,
        "top_provider": {
            "context_length": model.context_length,
            "max_completion_tokens": min(MAX_OUTPUT, model.context_length),
            "is_moderated": False,
        },
        "supported_parameters": _PARAMETERS,
    }


def _for_anthropic(model: ServedModel) -> dict[str, Any]:
    created = datetime.fromtimestamp(model.created, UTC)
    return {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": model.context_length,
        "max_tokens": min(MAX_OUTPUT, model.context_length),
    }
