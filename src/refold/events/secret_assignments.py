"""Secrets that a text gives away by naming them: `PASSWORD=...`, `"api_key": "..."`, `Authorization: Bearer
...`.

Source code names secrets all the time without holding any (`password = getpass()`, `apiKey: string`,
`token=token`). What stands after the name decides: quoted or not, mixed letters and digits or a word, in a
shell's `NAME=value`, in a URL's query or in code.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator

from refold.events.secret_formats import Span, pem_spans
from refold.events.secret_names import is_secret_key

# Searched one by one in the lowered text: that is ten times as fast as an alternative without case. What a term begins
# with is looked for before: most are in no text at all.
_TERMS = tuple(
    (term.partition("(")[0], re.compile(term))
    for term in (
        *("passw", "passphrase", "passcode", "pwd", "secret", "token", "credential"),
        *("authorization", "cookie", "jwt"),
        r"key(?:(?<=apikey)|(?<=api[-_.]key)|(?<=accesskey)|(?<=access[-_.]key)|(?<=privatekey)|(?<=private[-_.]key)"
        r"|(?<=signingkey)|(?<=signing[-_.]key)|(?<=encryptionkey)|(?<=encryption[-_.]key)|(?<=accountkey)"
        r"|(?<=account[-_.]key)|(?<=masterkey)|(?<=master[-_.]key))",
    )
)
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_NAME_REST = re.compile(r"[A-Za-z0-9_.-]{0,40}")
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
_NAME_LONGEST = 64
_SEPARATOR = re.compile(
    r"(?P<close>\\{0,8}[\"'`])?\]?[ \t]{0,8}(?::[ \t]?(?:str|string|String)(?: ?\| ?None)?[ \t]?(?==[^=]))?"
    r"(?P<sign>=>|:=|[:=])(?![=:>])(?P<space>[ \t]{0,8})(?:[bru](?=[\"']))?(?P<open>\\{0,8}[\"'`])?"
)
_BARE = re.compile(r"[\w+/=.~!@#$%^*:&?|-]{1,128}+")
_IN_QUERY = re.compile(r"[\w+/=.~!@$%^*:|-]{1,128}+")
_REST = re.compile(r"[\w+/=.~!@#$%^*:?|-]*")
_FLAG = re.compile(r"[ \t]([A-Za-z0-9_+/=.~!@#%^*:-]{6,512})(?=\s|\Z|[\"'])")
_QUOTED_LONGEST = 4096
_DIGIT = re.compile(r"[0-9]")
_LETTER = re.compile(r"[^\W\d_]")

_WORD_PASSWORD = re.compile(r"passw(?:or)?d|passphrase|passcode|pwd", re.IGNORECASE | re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_]+\Z")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+[.:]?\Z", re.ASCII)
_PLACEHOLDER = re.compile(
    r"\$[A-Za-z0-9_({]|%[(sdA-Z]|\{|<|\[redacted:|\*+\Z|x+\Z|\.{2,}|/|~|\\|your|my[-_]|insert|replace|enter|"
    r"none\Z|null\Z|true\Z|false\Z|undefined\Z|nil\Z|str\Z|string\Z|text\Z|required\Z|optional\Z|hidden\Z|"
    r"process\.env|os\.(?:environ|getenv)|#\{",
    re.IGNORECASE,
)
_TYPE = re.compile(r"(?:u?int|float|big|base|utf|sha|md|hmac|aes|rsa|bcrypt|oauth|v)[-_]?[0-9]", re.IGNORECASE)
_SCHEME = re.compile(
    r"(?:Bearer|Basic|Token|Digest|ApiKey|Bot|Negotiate|AWS4-HMAC-SHA256)[ \t]{1,4}([^\s\"'\\,;`]{6,4096})",
    re.IGNORECASE,
)
_COOKIE = re.compile(r"[A-Za-z0-9_.-]{1,64}=[^\r\n\"'\\]{4,4096}")
_BEARER = re.compile(r"bearer[ \t]{1,4}([A-Za-z0-9._~+/-]{16,}={0,2})", re.IGNORECASE)
_BASIC = re.compile(r"basic ([A-Za-z0-9+/]{8,1024}={0,2})", re.IGNORECASE)
_AZURE = re.compile(r"Key=(?:(?<=AccountKey=)|(?<=AccessKey=))([A-Za-z0-9+/]{40,}={0,2})")
_SAS = re.compile(r"sig=(?<=[?&]sig=)([A-Za-z0-9%+/=]{40,})")


def named_spans(text: str) -> Iterator[Span]:
    """The secrets that a text names. Spans may overlap."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters become two when lowered
        lowered = text.translate(_ASCII_LOWER)
    if "private key" in lowered:
        yield from pem_spans(text)
    if "bearer" in lowered:
        for found in _BEARER.finditer(text):
            if _has(found[1], digit=True) and not _DOTTED.match(found[1]):
                yield found.start(1), found.end(1), "bearer"
    if "basic " in lowered:
        for found in _BASIC.finditer(text):
            if _is_user_and_password(found[1]):
                yield found.start(1), found.end(1), "basic"
    for pattern in (_AZURE, _SAS):
        for found in pattern.finditer(text):
            yield found.start(1), found.end(1), "azure"
    yield from _assigned(text, lowered)


def _terms(lowered: str) -> Iterator[tuple[int, int]]:
    for beginning, term in _TERMS:
        if beginning in lowered:
            for found in term.finditer(lowered):
                yield found.span()


def _assigned(text: str, lowered: str) -> Iterator[Span]:
    at = 0
    for first, last in sorted(_terms(lowered)):
        if first < at:
            continue  # a second term of the same name, or inside a value
        rest = _NAME_REST.match(text, last)
        end = at = rest.end() if rest else last
        start = first
        lowest = max(0, start - _NAME_LONGEST)
        while start > lowest and text[start - 1] in _NAME_CHARACTERS:
            start -= 1
        name = text[start:end].lstrip("-.")
        if name and is_secret_key(name) and (span := _value_after(text, start, end, name)):
            yield span
            at = max(at, span[1])


def _value_after(text: str, start: int, end: int, name: str) -> Span | None:
    separator = _SEPARATOR.match(text, end)
    if separator is None:
        if text.startswith("--", start) and (flag := _FLAG.match(text, end)) and _looks_random(flag[1], 8):
            return flag.start(1), flag.end(1), "assignment"
        if text.startswith("<", start - 1) and text.startswith(">", end):
            close = text.find("</", end, end + 512)
            if close > end + 4 and not _PLACEHOLDER.match(text, end + 1) and not text[end + 1 : close].isspace():
                return end + 1, close, "assignment"
        return None
    value = separator.end()
    lowered = name.lower()
    if "authorization" in lowered and (scheme := _SCHEME.match(text, value)):
        credential = scheme[1]
        if not _PLACEHOLDER.match(credential) and (_has(credential, digit=True) or len(credential) >= 20):
            return scheme.start(1), scheme.end(1), "authorization"
        return None
    if "cookie" in lowered and separator["sign"] == ":" and (cookie := _COOKIE.match(text, value)):
        return cookie.start(), cookie.end(), "cookie"
    opened = separator["open"]
    if opened:
        close = text.find(opened, value, value + _QUOTED_LONGEST)
        if close >= 0:
            if _quoted_is_secret(text[value:close], name):
                return value, close, "assignment"
            return None
    in_query = text.startswith(("?", "&"), max(0, start - 1), start)
    bare = (_IN_QUERY if in_query else _BARE).match(text, value)
    if bare is None or text.startswith(("(", "[", "{", "<"), bare.end()):
        return None
    found = bare[0].rstrip(".:")
    if _bare_is_secret(found, name, in_query, separator["sign"] == "=" and not separator["space"]):
        rest = _REST.match(text, bare.end()) if len(bare[0]) == 128 else None
        return value, rest.end() if rest else value + len(found), "assignment"
    return None


def _quoted_is_secret(value: str, name: str) -> bool:
    if len(value) < 4 or "\n" in value or _PLACEHOLDER.match(value):
        return False
    spaced = " " in value or "\\n" in value
    if _WORD_PASSWORD.search(name):
        if spaced:
            return "phrase" in name.lower()
        return not (_IDENTIFIER.match(value.replace("-", "_")) and (is_secret_key(value) or len(value) > 24))
    return not spaced and _looks_random(value, 8)


def _bare_is_secret(value: str, name: str, in_query: bool, tight: bool) -> bool:
    if _PLACEHOLDER.match(value) or _DOTTED.match(value):
        return False
    password = _WORD_PASSWORD.search(name) is not None
    if tight:
        if _IDENTIFIER.match(value):
            shell = name.isupper() and not is_secret_key(value)
            return len(value) >= 4 and (shell or in_query)
        if name.isupper():
            return len(value) >= 4
    return _looks_random(value, 6 if password else 8)


def _looks_random(value: str, shortest: int) -> bool:
    """Letters and digits mixed without a space, and not the name of a type, a version or an attribute."""
    if len(value) < shortest or any(c.isspace() for c in value):
        return False
    return _has(value, digit=True) and _has(value, digit=False) and not _TYPE.match(value) and not _DOTTED.match(value)


def _has(value: str, *, digit: bool) -> bool:
    return (_DIGIT if digit else _LETTER).search(value) is not None


def _is_user_and_password(encoded: str) -> bool:
    try:
        decoded = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except ValueError:
        return False
    return b":" in decoded and decoded.isascii() and decoded.decode("ascii").isprintable()
