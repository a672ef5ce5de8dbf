"""From what a chat parser reports to the pieces of a reply."""

from collections.abc import Iterable, Iterator

from ds4agent.server.api.output import CallClosed, CallOpened, Finish, Piece
from ds4agent.server.api.request import Api
from ds4agent.server.api.strict_json import StrictJson
from engine.chat.format import (
    CallArguments,
    CallComplete,
    CallMalformed,
    CallStarted,
    ParserEvent,
    Text,
    Thinking,
)
from engine.chat.replay import new_call_id

_PREFIXES = {Api.MESSAGES: "toolu_"}


class ReplyReader:
    """Gives calls their ids and their arguments as strict JSON, and judges what became of them.

    A call is announced as soon as its tool is known and its arguments stream; so the client may
    have seen part of it when it turns out to be broken. Then the reply ends in an error, and a
    client does not take half a command for a whole one. A broken call of which nothing was sent
    comes out as the text that it is, or not at all where it was only cut off by the limit.

    Attributes:
        call_ids: Ids of the calls that were completed, in order.
        block: The calls as sampled, for ``CallReplay.remember(call_ids, block)``; ``""`` unless
            all of them were completed.
        reason: Why a call was broken, in one line that a model understands; ``""`` where none was.
    """

    def __init__(self, api: Api, *, streams: bool = False) -> None:
        """Begin a reply.

        Args:
            api: The interface, which decides what ids look like.
            streams: Whether the client sees each piece at once.
        """
        self._streams = streams
        self.call_ids: list[str] = []
        self.block = ""
        self.reason = ""
        self._prefix = _PREFIXES.get(api, "call_")
        self._ids: list[str] = []  # of all calls that were announced
        self._arguments = StrictJson()  # of the open call
        self._has_open_call = False
        self._broken = ""  # raw text of a broken call

    def take(self, events: Iterable[ParserEvent]) -> list[Piece]:
        """Turn what ``StreamParser.feed`` returned into pieces."""
        return [piece for event in events for piece in self._pieces(event)]

    def end(self, events: Iterable[ParserEvent], finish: Finish) -> tuple[list[Piece], Finish]:
        """Turn what ``StreamParser.finish`` returned into the last pieces.

        Args:
            events: The last events.
            finish: Why sampling ended: STOP, STOP_SEQUENCE, LENGTH or ERROR.

        Returns:
            The pieces, and why the reply ended: TOOL_CALLS where it was a call, ERROR where a call
            that was announced can't be run.
        """
        pieces = self.take(events)
        if self._has_open_call:
            self._has_open_call = False
            pieces.append(CallClosed(len(self._ids) - 1, is_whole=False))
        is_cut_off = finish in (Finish.LENGTH, Finish.ERROR)
        if self._broken and not is_cut_off:
            if self._streams and self._ids:
                finish = Finish.ERROR
            else:
                pieces.append(Text(self._broken))
        elif self.call_ids and finish is not Finish.ERROR:
            finish = Finish.TOOL_CALLS
        return pieces, finish

    def _pieces(self, event: ParserEvent) -> Iterator[Piece]:
        match event:
            case Text() | Thinking():
                yield event
            case CallStarted(index, name):
                if self._has_open_call:  # the next call of a block: the last one is closed
                    yield CallClosed(len(self._ids) - 1)
                self._ids.append(new_call_id(self._prefix))
                self._arguments = StrictJson()
                self._has_open_call = True
                yield CallOpened(index, self._ids[-1], name)
            case CallArguments(index, text):
                text = self._arguments.feed(text)
                if text:
                    yield CallArguments(index, text)
            case CallComplete(index, call):
                if self._has_open_call and index == len(self._ids) - 1:
                    missing, is_whole = self._arguments.end(call.arguments)
                    if missing:
                        yield CallArguments(index, missing)
                    self._has_open_call = False
                    yield CallClosed(index, is_whole)
                    if not is_whole:
                        self.reason, self._broken = "the arguments are no strict JSON", call.raw
                        self.call_ids, self.block = [], ""
                if not self._broken:
                    self.call_ids.append(self._ids[index])
                    self.block = call.raw
            case CallMalformed(reason, raw):
                self.reason, self._broken = reason, raw
