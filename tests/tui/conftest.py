"""A running screen over a fake worker."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from textual.pilot import Pilot

from ds4agent.events import Phase, PhaseChanged
from ds4agent.tui.app import AgentApp
from tests.tui.fake_worker import FakeWorker, ready
from tests.tui.screen import until

Opened = tuple[AgentApp, FakeWorker, Pilot]
OpenScreen = Callable[..., AbstractAsyncContextManager[Opened]]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSH_CONNECTION", "SSH_TTY", "COLORFGBG", "TEXTUAL_THEME", "TEXTUAL_ANIMATIONS"):
        monkeypatch.delenv(name, raising=False)
    # Tests wait for what is shown, so they need not wait for the pace that suits people.
    monkeypatch.setattr("ds4agent.tui.app.REPAINT_S", 0.005)
    monkeypatch.setattr("ds4agent.tui.feed._LONGEST_REST_S", 0.005)


@pytest.fixture
def open_screen() -> OpenScreen:
    """Open the screen at 80x24 and wait until the opening events are shown."""

    @asynccontextmanager
    async def opened(
        *opening, size: tuple[int, int] = (80, 24), resume_id: str = "", **options
    ) -> AsyncIterator[Opened]:
        worker = FakeWorker(*(opening or (ready(), PhaseChanged(Phase.IDLE))), resume_id=resume_id)
        app = AgentApp(worker, **options)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: worker.is_started and worker.events.empty())
            await pilot.pause(0.02)
            yield app, worker, pilot

    return opened
