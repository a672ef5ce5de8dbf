"""Forcing a reply into its form: calls of known tools with arguments of their schemas, an answer
of a JSON schema, or both to choose from.

Text, thinking and the contents of strings stay free. Everything else is forced, so that a call
that is begun is always one that can be read and run.
"""

from collections.abc import Callable

from engine.chat import constrain_chatml, constrain_dsml
from engine.chat.dsml_tags import V4, V41
from engine.chat.reply_rule import ReplyRule
from engine.grammar import Grammar, GrammarError
from engine.tokenizer import Tokenizer

_Maker = Callable[[ReplyRule, Tokenizer], str]
_MAKERS: dict[str, _Maker] = {
    "chatml": constrain_chatml.lark,
    "deepseek_v4": lambda rule, tokenizer: constrain_dsml.lark(rule, tokenizer, V4),
    "deepseek_v4_preview": lambda rule, tokenizer: constrain_dsml.lark(rule, tokenizer, V4),
    "deepseek_v41": lambda rule, tokenizer: constrain_dsml.lark(rule, tokenizer, V41),
}


def reply_grammar(format_name: str, tokenizer: Tokenizer, rule: ReplyRule) -> Grammar:
    """Return the grammar of a reply.

    Args:
        format_name: ``ChatFormat.name`` of the model.
        tokenizer: Its vocabulary.
        rule: What the reply must be.

    Raises:
        GrammarError: a schema asks for something that the format can't write or that can't be
            enforced; the message names the tool.
    """
    if rule.must_call and not rule.tools and not rule.files:
        raise GrammarError("a call is required but there are no tools", "Name a tool.")
    maker = _MAKERS.get(format_name)
    if maker is None:
        raise GrammarError(f"replies of the chat format {format_name} can't be constrained")
    if rule.files and format_name != "chatml":
        raise GrammarError(f"replies of the chat format {format_name} hold no file blocks")
    return Grammar.lark(maker(rule, tokenizer))
