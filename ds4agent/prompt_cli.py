"""The subcommand ``prompt``: what exactly the model sees of a conversation.

``render`` turns a conversation in a file into the prompt and its token ids; ``parse`` is in
``ds4agent.prompt_parse``.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ds4agent import prompt_parse
from ds4agent.errors import UsageError

_STDIN = "-"
_FAMILIES = ("deepseek_v4", "deepseek_v4_preview", "deepseek_v41", "chatml")


def add_parser(subparsers) -> None:
    """Add ``prompt`` and its actions to the command line."""
    parser = subparsers.add_parser("prompt", help="what exactly the model sees and writes")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    rendering = actions.add_parser("render", help="a conversation in a file as a prompt")
    rendering.add_argument(
        "file", metavar="FILE", help="JSON with messages, tools, thinking, effort; - is stdin"
    )
    rendering.add_argument("--family", choices=_FAMILIES, help="chat format; default: the model's")
    vocabulary = rendering.add_mutually_exclusive_group()
    vocabulary.add_argument("--tokenizer", metavar="FILE", help="a tokenizer.json")
    vocabulary.add_argument(
        "-m", "--model", metavar="NAME|FILE", help="a known name or a GGUF file"
    )
    rendering.add_argument(
        "--escape-closing-tags",
        action="store_true",
        help="escape closing tags in results and arguments, as the agent does",
    )
    rendering.add_argument(
        "--keep-tool-thinking",
        action="store_true",
        help="keep past thinking where tools were used but none are declared",
    )
    rendering.set_defaults(run=render_prompt)
    prompt_parse.add_action(actions)


def render_prompt(args: argparse.Namespace) -> int:
    """Print a JSON object: ``prompt``; ``token_ids``, null without a vocabulary; and
    ``special_ranges``, the half-open code-point ranges of the prompt that are control tokens."""
    from engine.chat.conversation import render_whole
    from engine.chat.conversation_json import read_conversation
    from engine.chat.segments import control_ranges, encode, plain_text

    conversation = read_conversation(_read_json(args.file))
    tokenizer, layout = _vocabulary_and_layout(args)
    segments = render_whole(conversation, layout)
    result = {
        "prompt": plain_text(segments),
        "token_ids": None if tokenizer is None else encode(segments, tokenizer),
        "special_ranges": control_ranges(segments),
    }
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(json.dumps(result, ensure_ascii=False) + "\n")
    return 0


def _vocabulary_and_layout(args: argparse.Namespace) -> tuple[Any, Any]:
    from engine.chat.chatml import ChatmlFormat
    from engine.chat.chatml_layout import ChatmlLayout
    from engine.chat.deepseek_v4 import name_system_token
    from engine.chat.deepseek_v4_dialect import DIALECTS
    from engine.chat.deepseek_v4_turns import DeepseekV4Layout
    from engine.chat.registry import family_of

    tokenizer, metadata = _vocabulary(args)
    family = args.family
    if family is None:
        if tokenizer is None:
            raise UsageError("the chat format is not known", "Give --family, --tokenizer or -m.")
        family = family_of("tokenizer.json", tokenizer, metadata)
    if family == "chatml":
        if tokenizer is None:
            raise UsageError(
                "chatml depends on the vocabulary, and there is none", "Give --tokenizer or -m."
            )
        return tokenizer, ChatmlLayout(ChatmlFormat(tokenizer))
    dialect = DIALECTS[family]
    if tokenizer is not None:
        name_system_token(tokenizer, dialect)
    return tokenizer, DeepseekV4Layout(dialect, args.escape_closing_tags, args.keep_tool_thinking)


def _vocabulary(args: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    if args.tokenizer is not None:
        from engine.tokenizer_json import tokenizer_from_json

        return tokenizer_from_json(Path(args.tokenizer)), {}
    if args.model is None:
        return None, {}
    from ds4agent.config import load_config
    from ds4agent.models import find_model
    from engine.gguf_file import GgufFile
    from engine.tokenizer import Tokenizer

    with GgufFile.open(find_model(args.model, load_config(Path.cwd()))) as gguf:
        return Tokenizer.from_gguf(gguf), gguf.metadata


def _read_json(name: str) -> Any:
    label = "standard input" if name == _STDIN else name
    hint = "Give a JSON file with messages."
    try:
        raw = sys.stdin.buffer.read() if name == _STDIN else Path(name).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{label} cannot be read: {reason}", "Check the path.") from error
    try:
        data = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{label} is not UTF-8 (byte {error.start})", hint) from error
    except ValueError as error:
        raise UsageError(f"{label} is not valid JSON: {error}", hint) from error
    except RecursionError as error:
        raise UsageError(f"{label} is nested too deeply", hint) from error
    # A recorded case holds the conversation as its input.
    if isinstance(data, dict) and "messages" not in data and isinstance(data.get("input"), dict):
        return data["input"]
    return data
