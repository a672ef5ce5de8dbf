"""/fork, /rewind and the ways to open a conversation, through a worker and a scripted model."""

import dataclasses

import pytest

from ds4agent.commands import CommandTable
from ds4agent.errors import UsageError
from ds4agent.events import Notice, Phase, PhaseChanged, Ready
from ds4agent.requests import Fork, Load, Rewind, Save
from engine.errors import RewindError
from sessions import upkeep
from sessions.record import SessionMeta
from sessions.store import SessionStore
from tests.agent.conftest import call
from tests.fakes.scripted_model import ScriptedCache
from tests.sessions.states import make_state

REPLIES = ["First.", "Second.", "Third.", "Fourth."]


@pytest.fixture
def store(tmp_path) -> SessionStore:
    return SessionStore(tmp_path / "kv")


@pytest.fixture
def rig(open_rig, tmp_path):
    rig = open_rig(REPLIES, store_folder=tmp_path / "kv")
    rig.ready()
    return rig


def say(rig, *messages: str):
    for message in messages:
        end = rig.turn(message)
        rig.wait_idle()
    return end


def told(rig, command) -> str:
    """Send a command that only gives a notice."""
    rig.send(command)
    text = rig.wait(Notice).text
    rig.wait_idle()
    return text


def spoken(ready: Ready) -> list[str]:
    return [entry.text for entry in ready.history]


def forget_rows(monkeypatch, keeps: int = 0) -> None:
    """Let the model go back to the start and over its last ``keeps`` tokens only."""
    whole = ScriptedCache.truncate

    def truncate(self, n_tokens: int) -> None:
        if n_tokens and n_tokens < len(self.ids) - keeps:
            raise RewindError("the rows in between were pooled")
        whole(self, n_tokens)

    monkeypatch.setattr(ScriptedCache, "truncate", truncate)


# --- fork -------------------------------------------------------------------------------------


def test_a_fork_goes_on_and_the_other_stays(rig, store) -> None:
    first = say(rig, "one", "two").session_id
    rig.send(Fork("Other way"))
    ready = rig.ready()
    assert ready.session_id != first and ready.prefilled_tokens == 0
    assert spoken(ready) == ["one", "First.", "two", "Second."]
    assert say(rig, "three").session_id == ready.session_id
    records = {record.id: record for record in store.list()}
    assert records[ready.session_id].label == "Other way"
    assert records[ready.session_id].tokens > records[first].tokens
    assert records[first].open_in == "" and records[ready.session_id].open_in
    rig.send(Load(first))
    assert spoken(rig.ready()) == ["one", "First.", "two", "Second."]
    rig.send(Load(ready.session_id))
    assert spoken(rig.ready())[-2:] == ["three", "Third."]


def test_a_fork_of_nothing_is_refused(rig) -> None:
    assert "nothing on the disk to fork" in told(rig, Fork())


# --- rewind -----------------------------------------------------------------------------------


def test_turns_are_taken_back_without_reading_anything(rig, store) -> None:
    saved = say(rig, "one", "two", "three")
    n_positions = rig.engine._model.n_positions
    rig.send(Rewind(2))
    ready = rig.ready()
    assert spoken(ready) == ["one", "First."] and ready.prefilled_tokens == 0
    assert rig.engine._model.n_positions <= n_positions + 1  # the last token's logits
    assert len(store.load(saved.session_id)[0].tokens) == ready.context_tokens  # on the disk too
    say(rig, "another two")
    assert rig.of(Ready)[-1].session_id == saved.session_id
    rig.close()
    text = store.restore(saved.session_id).text.decode()
    assert "another two" in text and "three" not in text


def test_all_turns_can_be_taken_back_and_no_more(rig) -> None:
    assert "no turn to take back" in told(rig, Rewind())
    say(rig, "one", "two")
    assert "there are 2 turns" in told(rig, Rewind(3))
    rig.send(Rewind(2))
    ready = rig.ready()
    assert ready.history == ()
    assert say(rig, "one again").outcome.value == "done"
    assert "First." in rig.said()


def test_a_turn_with_calls_goes_as_a_whole(open_rig, tmp_path) -> None:
    replies = ["First.", call("read", path="notes.txt"), "It says alpha.", "Then."]
    rig = open_rig(replies, store_folder=tmp_path / "kv")
    rig.ready()
    say(rig, "one", "read it")
    assert "alpha" in rig.said()
    rig.send(Rewind())
    assert spoken(rig.ready()) == ["one", "First."]
    assert "alpha" not in rig.said()


def test_a_model_that_forgets_takes_the_state_from_the_journal(rig, monkeypatch) -> None:
    say(rig, "one", "two", "three")
    forget_rows(monkeypatch, keeps=1)
    n_positions = rig.engine._model.n_positions
    rig.send(Rewind(2))
    ready = rig.ready()
    assert spoken(ready) == ["one", "First."] and ready.prefilled_tokens == 0
    assert rig.engine._model.n_positions == n_positions
    say(rig, "two again")
    assert "Second." in rig.said() and "three" not in rig.said()


def test_what_it_costs_is_said_and_paid_after_a_yes(rig, monkeypatch) -> None:
    say(rig, "one", "two", "three")
    rig.send(Save())  # the journal is taken up, so its states are gone
    rig.wait_idle()
    forget_rows(monkeypatch, keeps=1)
    before = rig.said()
    notice = told(rig, Rewind(1))
    assert "tokens have to be read again" in notice and "/rewind 1 prefill" in notice
    assert rig.said() == before
    rig.send(Rewind(1, may_prefill=True))
    ready = rig.wait(Ready)
    rig.wait_idle()
    assert spoken(ready) == ["one", "First.", "two", "Second."]
    assert ready.prefilled_tokens > 0 and ready.reused_tokens > 0  # from the system prompt on
    assert f"{ready.prefilled_tokens:,} tokens" in notice
    assert PhaseChanged(Phase.PREFILL, "reading again") in rig.seen
    say(rig, "three again")
    assert rig.said().count("Third.") == 1


def test_without_a_store_turns_are_taken_back_in_memory(open_rig) -> None:
    rig = open_rig(REPLIES)
    rig.ready()
    say(rig, "one", "two")
    rig.send(Rewind())
    assert spoken(rig.ready()) == ["one", "First."]


# --- ways to open -----------------------------------------------------------------------------


def test_a_copy_leaves_the_saved_one_as_it_is(open_rig, rig, store, tmp_path) -> None:
    saved = say(rig, "one").session_id  # and it stays open there
    second = open_rig(REPLIES, store_folder=tmp_path / "kv")
    second.ready()
    assert "as a copy or read-only" in told(second, Load(saved))
    second.send(Load(saved, "copy"))
    assert spoken(second.ready()) == ["one", "First."]
    copy = say(second, "two").session_id
    assert copy != saved and len(store.list()) == 2
    assert b"\ntwo<" not in store.restore(saved).text


def test_read_only_writes_nothing(open_rig, rig, store, tmp_path) -> None:
    saved = say(rig, "one").session_id
    second = open_rig(REPLIES, store_folder=tmp_path / "kv")
    second.ready()
    second.send(Load(saved, "read-only"))
    assert spoken(second.ready()) == ["one", "First."]
    say(second, "two")
    assert "read-only" in told(second, Save())
    second.close()
    assert len(store.list()) == 1 and b"\ntwo<" not in store.restore(saved).text


def test_a_stripped_conversation_is_read_again_when_asked(open_rig, rig, store, tmp_path) -> None:
    saved = say(rig, "one").session_id
    rig.close()
    n_tokens = store.find(saved).tokens
    upkeep.strip(store, saved)
    second = open_rig(REPLIES, store_folder=tmp_path / "kv")
    second.ready()
    notice = told(second, Load(saved))
    assert "only its text was kept" in notice and f"{n_tokens} tokens" in notice
    second.send(Load(saved, "prefill"))
    ready = second.ready()
    assert spoken(ready) == ["one", "First."] and ready.context_tokens == n_tokens
    assert ready.prefilled_tokens > 0 and ready.reused_tokens > 0
    assert say(second, "two").session_id != saved
    assert "Second." in second.said()


def test_another_models_conversation_is_read_again_when_asked(
    open_rig, rig, store, tmp_path
) -> None:
    saved = say(rig, "one").session_id
    rig.close()
    state, record = store.load(saved)
    other = dataclasses.replace(state, fingerprint="0f" * 32)
    store.save(
        other,
        store.restore(saved).text,
        title=record.title,
        created_at=record.created_at,
        meta=SessionMeta(record.cwd, record.model),
    )
    second = open_rig(REPLIES, store_folder=tmp_path / "kv")
    second.ready()
    notice = told(second, Load(saved))
    assert f"/load {saved[:8]} prefill reads its {record.tokens:,} tokens" in notice
    second.send(Load(saved, "prefill"))
    assert spoken(second.ready()) == ["one", "First."]
    say(second, "two")
    assert store.load(saved)[0].fingerprint == other.fingerprint  # its own model may go on


def test_a_text_of_another_chat_format_is_refused(open_rig, store, tmp_path) -> None:
    text = "<｜begin▁of▁sentence｜>S<｜User｜>Hi<｜Assistant｜>ok".encode()
    state = make_state(n_tokens=4)
    saved = store.save(state, text, title="t", created_at=1, meta=SessionMeta("", "v4"))
    rig = open_rig(REPLIES, store_folder=tmp_path / "kv")
    rig.ready()
    assert "chat format of another model (v4)" in told(rig, Load(saved.id, "prefill"))


# --- the command line of the screen -----------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("/fork", Fork("")),
        ("/fork Other way", Fork("Other way")),
        ("/rewind", Rewind(1)),
        ("/rewind 3", Rewind(3)),
        ("/rewind prefill", Rewind(1, True)),
        ("/rewind 2 prefill", Rewind(2, True)),
        ("/load ab12 copy", Load("ab12", "copy")),
        ("/load ab12  READ-ONLY", Load("ab12", "read-only")),
        ("/load ab12 prefill", Load("ab12", "prefill")),
    ],
)
def test_commands_are_read(line, command) -> None:
    assert CommandTable().parse(line)[1] == command


@pytest.mark.parametrize("line", ["/rewind 0", "/rewind -1", "/rewind two", "/load ab12 slowly"])
def test_wrong_arguments_are_told(line) -> None:
    with pytest.raises(UsageError, match="expected"):
        CommandTable().parse(line)


def test_forks_and_rewinds_wait_for_the_end_of_a_turn() -> None:
    for line in ("/fork", "/rewind"):
        with pytest.raises(UsageError, match="wait for the end"):
            CommandTable().parse(line, is_busy=True)
