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


def hopeless_at(pieces: list[bytes]) -> int:
    """Return how many tokens a watch lets an answer of one piece over and over have."""
    guard = RepetitionWatch()
    for n in range(1, 5000):
        i = n % len(pieces)
        guard.add(i, pieces[i])
        if guard.is_hopeless(guard.repeated_tokens()):
            return n
    raise AssertionError("it never ended")


def test_repetition_that_other_sampling_does_not_end_is_hopeless_soon() -> None:
    assert 512 <= hopeless_at([b"\n", b"```", b"bash"]) < 512 + 32
    assert 512 <= hopeless_at([b"\n", b"````"]) < 512 + 32
    assert 512 <= hopeless_at(["好".encode(), "的".encode()]) < 512 + 32
    listing = [
        b"```",
        b"sh",
        b"\n",
        b"python3",
        b" tally",
        b".py",
        b" ",
        b"1",
        b"\n",
        b"```",
        b"\n",
    ]
    assert 512 <= hopeless_at(listing) < 512 + 32


def test_repetition_of_a_long_piece_has_as_long_again_after_it_was_noticed() -> None:
    assert 12 * 100 <= hopeless_at([b"%d words" % i for i in range(100)]) < 12 * 100 + 32


def test_numbers_and_brackets_may_be_what_was_asked_for() -> None:
    assert 2048 <= hopeless_at([b"["]) < 2048 + 32
    assert 2048 <= hopeless_at([b"0", b","]) < 2048 + 32
    assert 2048 <= hopeless_at([b"0.", b"0", b", ", b"1e-5", b"\n"]) < 2048 + 32
