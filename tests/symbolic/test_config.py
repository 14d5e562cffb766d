"""Settings: what is read, what is refused and with which words."""

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpcoll import config
from hpcoll.config import Settings, agreed, describe, format_size, parse_size, read, unknown
from hpcoll.errors import ConfigError


def test_defaults():
    assert read({}) == Settings()
    assert Settings().timeout_s == 1800.0
    assert Settings().hooks is True
    with pytest.raises(FrozenInstanceError):
        Settings().hooks = False  # type: ignore[misc]


def test_all_variables():
    found = read(
        {
            "HPCOLL_ALGORITHM": "allreduce/ring; allgather/bruck:radix=2",
            "HPCOLL_TIMEOUT_S": "60",
            "HPCOLL_WARN_S": "1.5",
            "HPCOLL_STALL_S": "5e-2",
            "HPCOLL_PROGRESS": "thread",
            "HPCOLL_ENGINE": " python ",
            "HPCOLL_TRANSPORT": "mpi",
            "HPCOLL_HOOKS": "0",
            "HPCOLL_MAX_MESSAGE_NBYTES": "2G",
            "HPCOLL_CACHE_SIZE": "1",
            "UNRELATED": "x",
        }
    )
    assert found == Settings(
        algorithm=(("allgather", "allgather/bruck:radix=2"), ("allreduce", "allreduce/ring")),
        timeout_s=60.0,
        warn_s=1.5,
        stall_s=0.05,
        progress="thread",
        engine="python",
        transport="mpi",
        hooks=False,
        max_message_nbytes=2**31,
        cache_size=1,
    )


@pytest.mark.parametrize(
    ("variable", "value", "right"),
    [
        ("HPCOLL_TIMEOUT_S", "nan", "positive number"),
        ("HPCOLL_TIMEOUT_S", "inf", "positive number"),
        ("HPCOLL_TIMEOUT_S", "-1", "positive number"),
        ("HPCOLL_TIMEOUT_S", "0", "positive number"),
        ("HPCOLL_WARN_S", "1e999", "positive number"),
        ("HPCOLL_WARN_S", "1,5", "positive number"),
        ("HPCOLL_STALL_S", "", "empty"),
        ("HPCOLL_PROGRESS", "threads", "none, thread"),
        ("HPCOLL_ENGINE", "Compiled", "compiled, python"),
        ("HPCOLL_TRANSPORT", "MPI!", "auto"),
        ("HPCOLL_HOOKS", "yes", "1 or 0"),
        ("HPCOLL_MAX_MESSAGE_NBYTES", "64KB", "64KiB"),
        ("HPCOLL_CACHE_SIZE", "0", "from 1"),
        ("HPCOLL_ALGORITHM", "ring", "collective/algorithm"),
        ("HPCOLL_ALGORITHM", "allreduce/ring:x", "collective/algorithm"),
        ("HPCOLL_ALGORITHM", ";", "names no algorithm"),
        ("HPCOLL_ALGORITHM", "scan/a;scan/b", "pinned twice"),
    ],
)
def test_wrong_values_are_named(variable, value, right):
    with pytest.raises(ConfigError) as caught:
        read({variable: value})
    assert str(caught.value).startswith(f"{variable}={value!r}: ")
    assert right in str(caught.value)


def test_read_once(monkeypatch):
    config.settings.cache_clear()
    monkeypatch.setenv("HPCOLL_CACHE_SIZE", "7")
    assert config.settings().cache_size == 7
    monkeypatch.setenv("HPCOLL_CACHE_SIZE", "8")
    assert config.settings().cache_size == 7
    config.settings.cache_clear()


def test_unknown_variables_with_suggestions():
    environ = {
        "HPCOLL_TIMEOUT": "3",
        "HPCOLL_ENGINE": "python",
        "hpcoll_hooks": "1",
        "HPCOLL_QWXZ": "1",
        "HPCOLL__STARTED_BY": "bench",
        "PATH": "/bin",
    }
    assert unknown(environ) == [
        ("HPCOLL_QWXZ", None),
        ("HPCOLL_TIMEOUT", "HPCOLL_TIMEOUT_S"),
        ("hpcoll_hooks", "HPCOLL_HOOKS"),
    ]


def test_describe_shows_what_is_wrong():
    rows = {r.variable: r for r in describe({"HPCOLL_WARN_S": "nan", "HPCOLL_HOOKS": "0"})}
    assert len(rows) == len(Settings.__dataclass_fields__)
    assert rows["HPCOLL_HOOKS"].current == "0"
    assert rows["HPCOLL_HOOKS"].default == "1"
    assert rows["HPCOLL_WARN_S"].current == "nan"
    assert "positive" in (rows["HPCOLL_WARN_S"].problem or "")
    assert all(r.doc.endswith(".") for r in rows.values())


def test_agreed_leaves_local_settings_out():
    assert agreed(Settings(warn_s=1, stall_s=2)) == agreed(Settings())
    for other in (
        Settings(algorithm=(("scan", "scan/a"),)),
        Settings(timeout_s=1),
        Settings(progress="thread"),
        Settings(engine="python"),
        Settings(transport="mpi"),
        Settings(hooks=False),
        Settings(max_message_nbytes=1),
        Settings(cache_size=1),
    ):
        assert agreed(other) != agreed(Settings())


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("8", 8),
        ("8B", 8),
        ("1K", 1024),
        ("64k", 65536),
        ("1KiB", 1024),
        ("1.5M", 3 * 2**19),
        ("0.5K", 512),
        ("2G", 2**31),
        ("2gib", 2**31),
        (" 16 ", 16),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_sizes(text, nbytes):
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "-1", "+1", "1e6", "abc", "1KB", "1MB", "1GB", "1.5", "0.3K", "K", "1 K"),
        *("1T", "1iB", "1_000", "٣", "9223372036854775808", "9" * 5000, "1..5K", "1.K", "nan"),
        *("inf", "0x10"),
    ],
)
def test_texts_that_are_no_sizes(text):
    with pytest.raises(ConfigError) as caught:
        parse_size(text)
    assert repr(text)[:20] in str(caught.value)


@given(st.integers(0, 2**63 - 1))
@example(0)
@example(1536)
@example(2**30)
def test_sizes_are_read_as_written(nbytes):
    assert parse_size(format_size(nbytes)) == nbytes


@given(st.text() | st.from_regex(r"[0-9.]{1,6}[KMGkmgiBb]{0,4}", fullmatch=True))
def test_any_text_is_a_size_or_a_config_error(text):
    try:
        assert parse_size(text) >= 0
    except ConfigError as error:
        message = str(error)
    else:
        return
    assert repr(text)[:20] in message


@given(
    st.sampled_from([r.variable for r in describe({})]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
    | st.floats().map(str)
    | st.integers().map(str)
    | st.from_regex(r"[a-z]+/[a-z]+(:[a-z]=[0-9])?(;[a-z/]*)?", fullmatch=True),
)
def test_any_value_is_read_or_a_config_error(variable, value):
    row = next(r for r in describe({variable: value}) if r.variable == variable)
    try:
        settings = read({variable: value})
    except ConfigError as error:
        message = str(error)
    else:
        assert row.problem is None
        assert read({variable: row.current} if row.current != "auto" else {}) == settings
        return
    assert message.startswith(f"{variable}=")
    assert row.problem == message
