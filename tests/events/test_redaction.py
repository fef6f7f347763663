"""Redacted views: every known format is caught, ordinary text is not, and hostile text costs linear time."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from refold.events.redaction import Redactor, summary
from refold.events.secret_names import is_secret_key

from .secret_corpus import NEGATIVES, POSITIVES

REDACTOR = Redactor()


def encodings(value: Any) -> list[bytes]:
    """The JSON of a value as different encoders write it."""
    plain = json.dumps(value)
    made = [plain.encode(), plain.replace("/", "\\/").encode(), json.dumps(value, indent=1).encode()]
    made.append(plain.replace("=", "\\u003d").replace("k", "\\u006b").encode())  # more escapes than needed
    with suppress(UnicodeEncodeError, OverflowError):  # no lone surrogates, no huge integers in this encoder
        made.append(msgspec.json.encode(value))
    return made


def test_every_secret_of_the_corpus_is_caught_and_nothing_else_is() -> None:
    missed = []
    for label, value, secret in POSITIVES:
        redacted, count = REDACTOR.redact(value)
        shown = json.dumps(redacted, ensure_ascii=False)
        half = len(secret) // 2
        if count == 0 or secret[:half] in shown or secret[half:] in shown:
            missed.append((label, redacted))
    wrong = [REDACTOR.redact(value)[0] for value in NEGATIVES if REDACTOR.redact(value) != (value, 0)]
    print(f"caught {len(POSITIVES) - len(missed)} of {len(POSITIVES)}")
    print(f"wrongly flagged {len(wrong)} of {len(NEGATIVES)}")
    assert missed == []
    assert wrong == []
    assert len(POSITIVES) >= 60
    assert len(NEGATIVES) >= 60


def test_bytes_with_a_secret_are_suspicious_whichever_way_they_were_encoded() -> None:
    for label, value, _ in POSITIVES:
        for data in encodings(value):
            assert REDACTOR.suspicious(data), (label, data)


def test_plain_prose_usage_and_paths_are_not_even_suspicious() -> None:
    clean = {
        "messages": [{"role": "user", "content": "Please fix the parser in src/a.py: it drops a line. " * 20}],
        "usage": {"prompt_tokens": 4, "completion_tokens": 5, "max_tokens": 9, "totalTokens": 18},
        "id": "chatcmpl-9xZ1abcDEFghiJKLmnoPQRstuVWX",
        "digest": "3f786850e387550fdab836ed7e6dc881de23001b",
    }
    assert not REDACTOR.suspicious(json.dumps(clean).encode())


# Pieces that tend to meet in text, so that random joins come near to secrets and into them.
PIECES = st.sampled_from(
    [
        "token",
        "Token",
        "TOKEN",
        "tokens",
        "TOKENS",
        "s",
        "S",
        "iz",
        "IZ",
        "api_",
        "key",
        "Key",
        "KEY",
        "access",
        "refresh",
        "secret",
        "password",
        "pwd",
        "PWD",
        "=",
        ":",
        '"',
        "'",
        "\\",
        "/",
        "//",
        "://",
        "@",
        ":",
        "a:b",
        "sk-",
        "sk-ant-",
        "proj-",
        "ghp_",
        "AKIA",
        "SG.",
        "eyJ",
        ".",
        "-",
        "_",
        "basic",
        "bearer",
        "Bearer",
        "Basic",
        "authorization",
        "cookie",
        "\n",
        "\t",
        "\x1b[32m",
        "\u00e9",
        "\u212a",
        "\ud83d",
        "🙂",
        "[redacted:key]",
        "\x7f",
        "\x00",
        "jwt",
        "-----BEGIN",
        "PRIVATE",
        "-----END",
        "sig=",
        "?sig=",
        "xoxb-",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "0123456789abcdef0123456789abcdef",
        "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6",
        "hunter2x",
        "name",
        "value",
        "credential",
        "AccountKey",
        "export",
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=12).map("".join), st.lists(PIECES, max_size=8).map(" ".join))
VALUES = st.recursive(
    st.one_of(TEXTS, st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=8,
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(VALUES)
@example({"to\u212aen": "x", "api\u212aey": "y"})
@example({"access:tokens": "x", "token_s3": "y", "TOKENSa": "z", "token_iz": "w"})
def test_what_is_not_suspicious_has_nothing_to_redact(value: Any) -> None:
    for data in encodings(value):
        if not REDACTOR.suspicious(data):
            assert REDACTOR.redact(value)[1] == 0, data


NAME_WORDS = (
    *("token", "tokens", "secret", "password", "api", "key", "access", "refresh", "private", "cookie", "jwt"),
    *("pwd", "s", "iz", "x", "3", "index", "auth", "bot", "signing", "encryption", "account", "master"),
    *("credential", "authorization", "passphrase", "passcode", "bearer", "client", "passwd"),
)


def test_bytes_with_a_secret_name_are_suspicious_however_it_is_spelled() -> None:
    styles = (str.lower, str.upper, str.title)
    secret_names = 0
    for first, second in product(NAME_WORDS, NAME_WORDS):
        for style, other in product(styles, styles):
            for separator in ("", "_", "-", ".", " ", ":", "/", "é"):
                name = style(first) + separator + other(second)
                if is_secret_key(name):
                    secret_names += 1
                    assert REDACTOR.suspicious(json.dumps({name: "v"}).encode()), name
    assert secret_names > 10_000


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(min_size=6, max_size=12), TEXTS, TEXTS)
@example('""""""', "", "")
@example("//////", "", "")
@example("\\\\\\\\\\\\", "a", "b")
@example("éééééé", "", "")
@example("\x7f\x7f\x7f\x7f\x7f\x7f", "", "")
@example('pa"ss\nwörd', "x", "y")
def test_a_registered_value_is_found_anywhere_and_its_bytes_are_suspicious(
    secret: str, before: str, after: str
) -> None:
    redactor = Redactor([secret])
    value = {"text": before + secret + after}
    redacted, count = redactor.redact(value)
    assert count >= 1
    if not before and not after:
        assert redacted == {"text": "[redacted:registered]"}
    for data in encodings(value):
        assert redactor.suspicious(data), data


@settings(max_examples=300, deadline=None, derandomize=True)
@given(VALUES)
def test_redacting_a_redacted_view_changes_nothing(value: Any) -> None:
    once, _ = REDACTOR.redact(value)
    assert REDACTOR.redact(once) == (once, 0)


def test_a_registered_value_is_found_inside_longer_text_in_a_nested_string_in_a_url_and_in_a_key() -> None:
    redactor = Redactor(['open "sesame"', "short"])
    assert redactor.redact('say open "sesame" now') == ("say [redacted:registered] now", 1)
    assert redactor.redact(json.dumps({"a": 'open "sesame"'})) == ('{"a": "[redacted:registered]"}', 1)
    assert redactor.redact("?q=open%20%22sesame%22") == ("?q=[redacted:registered]", 1)
    assert redactor.redact({'open "sesame"': 1, 'open "sesame" ': 2})[1] == 2
    assert redactor.redact("a short one") == ("a short one", 0)


def test_two_secret_keys_of_one_object_stay_two_entries() -> None:
    redacted, count = Redactor(["first-value", "other-value"]).redact({"first-value": 1, "other-value": 2})
    assert (sorted(redacted.values()), count) == ([1, 2], 2)


def test_the_source_is_not_changed_and_unknown_leaves_stay() -> None:
    leaf = object()
    source = {"password": ["a", {"b": "c"}, None, True, 7], "other": leaf, "t": ("x",)}
    redacted, count = REDACTOR.redact(source)
    assert redacted == {
        "password": ["[redacted:key]", {"b": "[redacted:key]"}, None, True, "[redacted:key]"],
        "other": leaf,
        "t": ["x"],
    }
    assert count == 3
    assert source["password"] == ["a", {"b": "c"}, None, True, 7]


def test_only_the_secret_of_a_text_is_replaced() -> None:
    text = "before PASSWORD=Tr0ub4dor after https://bob:s3cr3tpw@h/x and more"
    assert REDACTOR.redact(text) == (
        "before PASSWORD=[redacted:assignment] after https://bob:[redacted:url]@h/x and more",
        2,
    )


@pytest.mark.parametrize("name", ["password", "DB-PASSWORD", "dbPassword", "xApiKey", "TOKEN", "api_tokens", "ApiKEY"])
def test_prefix_suffix_case_and_separators_do_not_hide_a_secret_name(name: str) -> None:
    assert is_secret_key(name)


@pytest.mark.parametrize("name", ["max_tokens", "tokenizer", "secretary", "key", "", "token_count", "password" * 20])
def test_names_that_only_resemble_a_secret_name_are_free(name: str) -> None:
    assert not is_secret_key(name)


HOSTILE = [
    "a",
    "sk-",
    "-sk-proj-",
    "eyJ",
    "-eyJaaaaaaaaaaaa",
    ".eyJaaaaaaaaaaaa",
    "://",
    "://a:b",
    "AKIA",
    "xoxb-",
    "SG.aaaaaaaaaaaaaaaa.",
    "0123456789:AA",
    "MTIzNDU2Nzg5MDEyMzQ1Njc4.aaaaaa.",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\n" + "A" * 50,
    "token",
    "password=",
    'password="',
    "password: ",
    "<password>",
    "--password ",
    "authorization: bearer ",
    "bearer a",
    "basic aaaaaaaaaaaa ",
    "cookie: a=",
    "secret\\\\\\",
    "hooks.slack.com/services/",
    "discord.com/api/webhooks/1",
    "AccountKey=",
    "[redacted:",
    "\\",
    "\ud83d",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_megabyte_of_near_misses_ends(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    redacted, _ = REDACTOR.redact({"text": text, "tail": "password=hunter22"})
    assert redacted["tail"] == "password=[redacted:assignment]"


def test_nesting_deeper_than_the_stack_is_walked() -> None:
    deep: Any = {"password": "x1"}
    for _ in range(100_000):
        deep = [deep]
    redacted, count = REDACTOR.redact(deep)
    assert count == 1
    assert summary(deep) == "[" * 253 + "…"
    while redacted:  # taken apart by hand: comparing or freeing it recursively would need the stack
        redacted = redacted[0] if isinstance(redacted, list) else None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.one_of(TEXTS, VALUES), st.integers(min_value=3, max_value=80))
def test_a_summary_fits_is_printable_and_is_a_beginning_of_the_whole(value: Any, limit: int) -> None:
    whole = summary(value, 10_000_000)
    short = summary(value, limit)
    assert len(short.encode()) <= limit
    assert all(c.isprintable() or c in "\n\t" or c.isspace() or not c.isascii() for c in short)
    if len(whole.encode()) <= limit:
        assert short == whole
    else:
        assert short.endswith("…")
        assert whole.startswith(short[:-1])


@settings(deadline=None, derandomize=True)
@given(VALUES)
def test_a_summary_that_fits_is_the_json_of_the_value(value: Any) -> None:
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if text.isascii() and text.isprintable():
            assert summary(value, 10_000_000) == text


def test_a_summary_is_cut_between_characters_and_marked() -> None:
    assert summary("é" * 10, 20) == "é" * 10
    assert summary("é" * 11, 20) == "é" * 8 + "…"
    assert summary("🙂🙂", 7) == "🙂…"
    assert summary("ab", 2) == "ab"
    assert summary("abc", 2) == ""


def test_what_a_terminal_would_obey_is_shown_instead() -> None:
    hostile = "a\x1b[31m\x00\x9b\u202e\ud83d\n\tb"
    assert summary(hostile) == "a\\x1b[31m\\x00\\x9b\\u202e\ufffd\n\tb"
    assert summary("\x1b" * 10, 10) == "\\x1b…"


def test_huge_values_are_summed_up_from_their_beginning() -> None:
    assert summary({"a": [1, 2.5, None, True, "x\n"], "b": {}}) == '{"a":[1,2.5,null,true,"x\\n"],"b":{}}'
    assert summary(10**5000) == "(integer of 16610 bits)"
    assert summary([object()]) == "[(object)]"

    class Endless(dict[str, int]):
        def items(self) -> Any:
            return ((f"k{i}", i) for i in iter(int, 1))

    assert summary(Endless(), 20) == '{"k0":0,"k0":0,"k…'


def _shared() -> Path:
    named = os.environ.get("REFOLD_SHARED")
    return Path(named) if named else Path(__file__).resolve().parents[2].parent / "shared"


def _recorded(pattern: str) -> list[Any]:
    files = sorted((_shared() / "data").glob(pattern))
    if not files:
        pytest.skip(f"no recorded sessions at {_shared() / 'data' / pattern}: set REFOLD_SHARED to have them read")
    values = []
    for file in files:
        text = file.read_text()
        values += [json.loads(line) for line in text.splitlines()] if file.suffix == ".jsonl" else [json.loads(text)]
    return values


@pytest.mark.parametrize("pattern", ["pi-sessions/*.jsonl", "tau-bench/*.json", "swe-agent/*.traj"])
def test_real_sessions_that_hold_no_secret_have_no_false_alarm(pattern: str) -> None:
    alarms: Counter[str] = Counter()
    for value in _recorded(pattern):
        redacted, count = REDACTOR.redact(value)
        alarms["all"] += count
        assert count or redacted == value
    print(f"{pattern}: {alarms['all']} redactions")
    assert alarms["all"] == 0
