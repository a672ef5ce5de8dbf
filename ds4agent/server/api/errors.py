"""Errors of a request, and how each interface spells them.

OpenAI's interfaces: ``{"error": {"message", "type", "param", "code"}}``. Anthropic's:
``{"type": "error", "error": {"type", "message"}}``. Both as their official clients read them.
"""

from typing import Any

from ds4agent.server.api.request import Api

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """A request that is not answered, or not to its end.

    Attributes:
        status: HTTP status.
        message: One line for the person at the client.
        param: The field that is wrong, or ``""``.
        code: A word for programs; by default the type of the error.
        extra: More members of the error object.
    """

    def __init__(
        self,
        message: str,
        status: int = 400,
        *,
        param: str = "",
        code: str = "",
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.code = code
        self.extra = extra or {}

    def body(self, api: Api) -> dict[str, Any]:
        """Return the JSON object that an interface answers with."""
        if api is Api.MESSAGES:
            fallback = "api_error" if self.status >= 500 else "invalid_request_error"
            kind = _ANTHROPIC_TYPES.get(self.status, fallback)
            return {"type": "error", "error": {"type": kind, "message": self.message, **self.extra}}
        fallback = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = _OPENAI_TYPES.get(self.status, fallback)
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": self.param or None,
                "code": self.code or kind,
                **self.extra,
            }
        }


def context_exceeded(api: Api, n_prompt: int, context_length: int) -> ApiError:
    """Return the error of a prompt that leaves no room for an answer."""
    param = {Api.RESPONSES: "input", Api.COMPLETIONS: "prompt"}.get(api, "messages")
    return ApiError(
        f"The prompt has {n_prompt} tokens, and the context of this server is {context_length} "
        "tokens with the answer. Shorten it, or start the server with a larger --ctx.",
        param=param,
        code="context_length_exceeded",
        extra={"n_prompt_tokens": n_prompt, "n_ctx": context_length},
    )
