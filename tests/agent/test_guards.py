"""The watchmen: when they speak, and when they must not."""

from ds4agent.agent.guards import CallHistory, RepetitionWatch


def watch(ids: list[int]) -> tuple[int, bool]:
    guard = RepetitionWatch()
    most = 0
    for token_id in ids:
        guard.add(token_id)
        most = max(most, guard.repeated_tokens())
    return most, guard.is_hopeless(most)


def test_call_history_when_nothing_changes_counts_up() -> None:
    history = CallHistory()
    counts = [history.count("bash", {"command": "make"}, "fail", changed=False) for _ in range(3)]
    assert counts == [1, 2, 3]
    assert history.count("bash", {"command": "make"}, "other", changed=False) == 1


def test_call_history_when_a_file_changes_in_between_starts_anew() -> None:
    history = CallHistory()
    for edit in range(5):
        assert history.count("bash", {"command": "make"}, "fail", changed=False) == 1
        history.count("edit", {"n": edit}, "ok", changed=True)


def test_call_history_when_the_same_write_repeats_counts_it() -> None:
    history = CallHistory()
    counts = [history.count("write", {"path": "a"}, "ok", changed=True) for _ in range(3)]
    assert counts == [1, 2, 3]


def test_call_history_when_files_change_to_and_fro_counts_on_after_a_while() -> None:
    history = CallHistory()
    counts = []
    for edit in range(10):
        counts.append(history.count("read", {"path": "a"}, "x", changed=False))
        history.count("edit", {"n": edit}, "ok", changed=True)
    assert counts == [1, 1, 1, 1, 1, 1, 7, 8, 9, 10]


def test_question_is_pointless_until_something_changes() -> None:
    history = CallHistory()
    read = {"path": "a"}
    assert not history.is_pointless("read", read, can_change=False)
    history.count("read", read, "x", changed=False)
    assert history.is_pointless("read", read, can_change=False)
    assert not history.is_pointless("read", {"path": "b"}, can_change=False)
    history.count("edit", {"old": "x"}, "ok", changed=True)
    assert not history.is_pointless("read", read, can_change=False)


def test_change_is_pointless_once_made_or_once_another_was_made_instead() -> None:
    history = CallHistory()
    history.count("write", {"content": "1"}, "read it first", changed=False)
    assert not history.is_pointless("write", {"content": "1"}, can_change=True)
    history.count("edit", {"new": "2"}, "ok", changed=True)
    assert history.is_pointless("edit", {"new": "2"}, can_change=True)
    assert history.is_pointless("write", {"content": "1"}, can_change=True)
    assert not history.is_pointless("write", {"content": "3"}, can_change=True)


def test_repetition_when_there_is_none_is_silent() -> None:
    assert watch(list(range(5000))) == (0, False)


def test_repetition_when_short_is_silent() -> None:
    assert watch(list(range(500)) + [7] * 200) == (0, False)


def test_repetition_of_a_phrase_is_noticed_and_then_hopeless() -> None:
    phrase = [5, 6, 7, 8, 9, 10, 11]
    assert 256 <= watch(list(range(300)) + phrase * 50)[0] < 2048
    assert watch(list(range(300)) + phrase * 400)[1]
