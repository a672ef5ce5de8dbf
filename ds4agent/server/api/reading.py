"""From what a chat parser reports to the pieces of a reply."""

from collections.abc import Iterable

from ds4agent.server.api.output import Finish, Piece
from ds4agent.server.api.request import Api
from engine.chat.format import ParserEvent


class ReplyReader:
    """Gives calls their ids and their arguments as strict JSON, and judges what became of them.

    Attributes:
        call_ids: Ids of the calls that were completed, in order.
        block: The calls as sampled, for ``CallReplay.remember(call_ids, block)``; ``""`` unless
            all of them were completed.
    """

    def __init__(self, api: Api) -> None:
        self.call_ids: list[str] = []
        self.block = ""

    def take(self, events: Iterable[ParserEvent]) -> list[Piece]:
        """Turn what ``StreamParser.feed`` returned into pieces."""
        raise NotImplementedError

    def end(self, events: Iterable[ParserEvent], finish: Finish) -> tuple[list[Piece], Finish]:
        """Turn what ``StreamParser.finish`` returned into the last pieces.

        Args:
            events: The last events.
            finish: Why sampling ended: STOP, STOP_SEQUENCE, LENGTH or ERROR.

        Returns:
            The pieces, and why the reply ended: TOOL_CALLS where it was a call.
        """
        raise NotImplementedError
