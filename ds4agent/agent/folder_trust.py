"""Asking whether a folder is trusted, and what follows from the answer."""

from ds4agent.agent.event_stream import EventStream
from ds4agent.agent.mailbox import Mailbox
from ds4agent.agent.project import UntrustedProject
from ds4agent.agent.settings import AgentSettings
from ds4agent.agent.telling import told
from ds4agent.errors import ConfigError, explain
from ds4agent.events import Notice, TrustDecided, TrustNeeded
from ds4agent.permissions.trust import TrustFile
from ds4agent.requests import Mode, Trust


class FolderTrust:
    """One start in one folder. Without a project that waits for a word it does nothing."""

    def __init__(
        self,
        project: UntrustedProject | None,
        memory: TrustFile,
        mailbox: Mailbox,
        stream: EventStream,
    ) -> None:
        self._project = project
        self._memory = memory
        self._mailbox = mailbox
        self._stream = stream
        self._was_asked = False

    def ask(self, *, is_headless: bool) -> None:
        """Ask, if somebody is there who has not been asked; does not wait."""
        project = self._project
        if project is None:
            return
        if is_headless or project.was_refused:
            self._stream.emit(Notice(f"{project.unused()} --trust uses it.", "warning"))
            return
        self._was_asked = True
        self._mailbox.ask_for_trust(TrustNeeded(str(project.folder), project.brings))

    def settle(self, settings: AgentSettings) -> AgentSettings:
        """Wait for the answer; return the settings that hold. At the end of the program, these."""
        project = self._project
        answer = self._mailbox.wait_for_trust() if self._was_asked else None
        if project is None or answer is None:
            return settings
        if answer.trusted:
            try:
                settings = project.with_project()
                self._mailbox.narrow(settings.mode)
            except ConfigError as error:
                # A mistake in the project's own file: a yes is asked for again when it is mended.
                self._stream.emit(Notice(told(error), "error"))
                answer = Trust(False, is_remembered=False)
        self._remember(answer)
        if not answer.trusted:
            if not project.keeps_mode:
                self._mailbox.narrow(Mode.PLAN)
            self._stream.emit(Notice(f"{project.unused()} /trust changes that."))
        self._stream.emit(TrustDecided(str(project.folder), answer.trusted))
        return settings

    def obey(self, command: Trust) -> None:
        """Keep what the person says unasked."""
        if self._remember(command):
            word = "used" if command.trusted else "not used"
            self._stream.emit(
                Notice(f"From the next start on, what this folder brings for agents is {word}.")
            )

    def _remember(self, answer: Trust) -> bool:
        """Keep an answer if it is to be kept; False when that failed, which is told."""
        if not answer.is_remembered:
            return True
        try:
            self._memory.remember(answer.trusted)
        except ConfigError as error:
            self._stream.emit(Notice(f"Not remembered: {explain(error)}", "warning"))
            return False
        return True
