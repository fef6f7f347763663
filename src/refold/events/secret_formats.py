"""Strings that are secrets by their format: what providers' keys look like, and how they are told from
look-alikes.

Every format has a *core*: the shortest piece that such a secret must contain, a plain sequence of ASCII
classes of fixed length. Cores are searched in stored bytes (a suspicion) and in text (a find, after its
check), so that what the scan of the bytes lets pass cannot be found in the text. All costs are linear in
the text: a core has a bounded length, a check looks at a bounded window, and only a confirmed secret is
followed to its end.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Span = tuple[int, int, str]
"""Start, end (in characters) and kind of one secret in a text."""

_WINDOW = 96


@dataclass(frozen=True)
class Format:
    """One known format: `core` as a regular expression, `tail` = the characters a found secret goes on
    with."""

    kind: str
    core: str
    tail: str = r"[A-Za-z0-9_-]*"
    check: Callable[[str], bool] = lambda _: True


_RUN_WITH_DIGIT = re.compile(r"[A-Za-z_.-]*[0-9]")


def _has_digit(window: str) -> bool:
    return _RUN_WITH_DIGIT.match(window) is not None


def _dashed_key(window: str) -> bool:
    """`sk-proj-` and friends: a digit, or longer than anything people write with dashes."""
    return _has_digit(window) or re.match(r"[A-Za-z0-9_-]{48}", window) is not None


def _bare_key(window: str) -> bool:
    """`sk-` and an unbroken run: letters and digits mixed, or 40 of them."""
    run = re.match(r"sk-([A-Za-z0-9]*)", window)
    return run is not None and (len(run[1]) >= 40 or (_has_digit(run[1]) and not run[1].isdigit()))


def _aws_id(window: str) -> bool:
    return re.match(r"A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9+/=])", window) is not None


def _discord(window: str) -> bool:
    """The first part of a Discord token is the base64 form of a decimal user id."""
    head = window.partition(".")[0]
    try:
        return b64decode(head + "=" * (-len(head) % 4), altchars=b"-_").isdigit()
    except ValueError:
        return False


_ALNUM = r"[A-Za-z0-9]*"
FORMATS = (
    Format("anthropic", r"sk-ant-[A-Za-z0-9_-]{20}", check=_dashed_key),
    Format("openai", r"sk-(?:proj|svcacct|admin|None|service)-[A-Za-z0-9_-]{20}", check=_dashed_key),
    Format("openrouter", r"sk-or-v1-[A-Za-z0-9]{20}"),
    Format("openai", r"sk-[A-Za-z0-9]{20}", check=_bare_key),
    Format("github", r"gh[pousr]_[A-Za-z0-9]{30}", _ALNUM),
    Format("github", r"github_pat_[A-Za-z0-9_]{30}"),
    Format("gitlab", r"gl(?:pat|ptt|dt|rt|cbt|ft|oas|agent)-[A-Za-z0-9_-]{20}", r"[A-Za-z0-9_.-]*", _has_digit),
    Format("aws", r"A[KS]IA[A-Z0-9]{16}", "", _aws_id),
    Format("google", r"AIza[A-Za-z0-9_-]{35}"),
    Format("google", r"ya29\.[A-Za-z0-9_-]{20}"),
    Format("google", r"GOCSPX-[A-Za-z0-9_-]{20}"),
    Format("slack", r"xox[a-z]-[A-Za-z0-9-]{16}", r"[A-Za-z0-9.-]*", _has_digit),
    Format("slack", r"xox[a-z]\.[A-Za-z0-9-]{20}", r"[A-Za-z0-9.-]*", _has_digit),
    Format("slack", r"xapp-[0-9]-[A-Za-z0-9-]{16}", check=_has_digit),
    Format("stripe", r"[sr]k_(?:live|test)_[A-Za-z0-9]{16}"),
    Format("stripe", r"whsec_[A-Za-z0-9]{20}", r"[A-Za-z0-9+/=]*"),
    Format("twilio", r"SK[0-9a-f]{32}", "", lambda w: re.match(r"SK[0-9a-f]{32}(?![A-Za-z0-9])", w) is not None),
    Format("sendgrid", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16}"),
    Format("mailgun", r"key-[0-9a-f]{32}"),
    Format("npm", r"npm_[A-Za-z0-9]{30}"),
    Format("pypi", r"pypi-Ag[A-Za-z0-9_-]{40}"),
    Format("huggingface", r"hf_[A-Za-z0-9]{30}"),
    Format("digitalocean", r"do[opr]_v1_[0-9a-f]{40}"),
    Format("telegram", r"[0-9]{8,10}:AA[A-Za-z0-9_-]{32}"),
    Format("discord", r"[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27}", check=_discord),
    Format("groq", r"gsk_[A-Za-z0-9]{40}"),
    Format("xai", r"xai-[A-Za-z0-9]{40}"),
    Format("perplexity", r"pplx-[A-Za-z0-9]{32}"),
    Format("replicate", r"r8_[A-Za-z0-9]{30}"),
    Format("nvidia", r"nvapi-[A-Za-z0-9_-]{40}", check=_has_digit),
    Format("langsmith", r"lsv2_(?:pt|sk)_[0-9a-f]{32}"),
    Format("databricks", r"dapi[0-9a-f]{32}"),
    Format("atlassian", r"ATATT3[A-Za-z0-9_-]{40}", r"[A-Za-z0-9_=-]*"),
    Format("shopify", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    Format("docker", r"dckr_pat_[A-Za-z0-9_-]{20}"),
    Format("vault", r"hv[sb]\.[A-Za-z0-9_-]{24}", check=_has_digit),
    Format("linear", r"lin_api_[A-Za-z0-9]{32}"),
)

# Opaque strings with more structure than a core can say; still bounded in what they look at.
_STRUCTURED = (
    (
        "jwt",
        r"eyJ(?:(?<![A-Za-z0-9]eyJ)|(?<=\\[ntr]eyJ)|(?<=[0-9a-fA-F]eyJ)|(?<=meyJ))"
        r"[A-Za-z0-9_-]{10,1024}\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]++)*",
    ),
    ("slack", r"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9_/]{8,40}/[A-Za-z0-9_-]{16,}+"),
    ("discord", r"discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks/[0-9]{16,20}/[A-Za-z0-9_-]{40,}+"),
    ("aws", r"(?i:X-Amz-Signature=)[0-9a-f]{64}"),
)
# One search for each: a core that begins with a literal is found much faster than an alternative among forty.
_SEARCHES = tuple((known, re.compile(known.core), re.compile(known.tail)) for known in FORMATS)
_STRUCTURES = tuple((kind, re.compile(pattern)) for kind, pattern in _STRUCTURED)
# How the run of characters of each format is recognised: by what it begins with, or by what precedes it.
_CORES_IN_RUN = [f.core for f in FORMATS if not re.search(r"\\\.|:AA", f.core)] + [r"eyJ[A-Za-z0-9]"]
_IN_RUN = re.compile("|".join(_CORES_IN_RUN).encode())


def _beginnings(core: str) -> Iterator[str]:
    """The texts with which a core may begin, up to its first class of many characters: `gh[pousr]_` has five."""
    choice = re.match(r"([A-Za-z0-9_-]*)(?:\[([a-z A-Z]{2,5})\](?![{*+])|\(\?:([A-Za-z|]+)\))", core)
    if choice is None or "-" in (choice[2] or ""):
        yield re.match(r"[A-Za-z0-9_-]*", core)[0]  # type: ignore[index]
        return
    for each in choice[2] or choice[3].split("|"):
        yield from _beginnings(choice[1] + each + core[choice.end() :])


# Forty plain searches of all runs at once are several times as fast as one alternative among forty in each.
_ALL_BEGINNINGS = {each.encode() for core in _CORES_IN_RUN for each in _beginnings(core)}
_BEGINNINGS = tuple(each for each in _ALL_BEGINNINGS if not any(each[:n] in _ALL_BEGINNINGS for n in range(len(each))))
_BEFORE_RUN = re.compile(
    rb"(?:ya29\.|xox[a-z]\.|hv[sb]\.|SG\.|SG\.[A-Za-z0-9_-]{16,32}\.|[0-9]:|\.[A-Za-z0-9_-]{6}\.|[Ss]ignature=|"
    rb"(?i:bearer {1,4}|basic )|/(?:services|workflows)/[A-Za-z0-9/_]{8,40}/|/webhooks/[0-9]{16,20}/)\Z"
)

# A character that such secrets are made of -> `a`, any other -> space: a run is then found by a plain search.
_RUNS = bytes.maketrans(
    bytes(range(256)),
    bytes(97 if chr(i).isascii() and (chr(i).isalnum() or i in b"-_") else 32 for i in range(256)),
)
_RUN = b"a" * 20
# What may precede a run, by its last character; what must then be near spares most searches.
_LINKS: dict[bytes, tuple[bytes, ...]] = {
    b".": (b".",),
    b":": (b":",),
    b"=": (b"ignature=",),
    b"/": (b"/services/", b"/workflows/", b"/webhooks/"),
    b" ": (b"r ", b"R ", b"c ", b"C "),
}
_CONTEXT = 64  # what precedes the run and belongs to the secret: `SG.`, `/services/T.../B.../`

# A word may end where a secret begins when that word is an escape: `\n`, a colour, a percent-encoded `=`.
_ESCAPE_BEFORE = re.compile(r"(?:\\[ntrbf]|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\[[0-9;]{0,8}m|%[0-9a-fA-F]{2})\Z")


def may_hold_format(data: bytes) -> bool:
    """Whether UTF-8 bytes may hold a secret of a known opaque format. False is certain.

    All of them contain an unbroken run of 20 letters, digits, `-` or `_`; prose and code rarely do, so
    most data is dismissed by one translation and one search.
    """
    runs = data.translate(_RUNS)
    start = runs.find(_RUN)
    found = []
    while start >= 0:
        end = runs.find(b" ", start)
        if end < 0:
            end = len(data)
        found.append(data[start:end])
        ends = _LINKS.get(data[start - 1 : start])
        if ends is not None:
            before = data[max(0, start - _CONTEXT) : start]
            if any(end in before for end in ends) and _BEFORE_RUN.search(before):
                return True
        start = runs.find(_RUN, end)
    if not found:
        return False
    joined = b" ".join(found)
    return any(each in joined for each in _BEGINNINGS) and _IN_RUN.search(joined) is not None


def starts_a_word(text: str, at: int) -> bool:
    """Whether a secret may begin here: after no ASCII letter or digit, except those that end an escape."""
    if at == 0:
        return True
    before = text[at - 1]
    if not (before.isascii() and before.isalnum()):
        return True
    return _ESCAPE_BEFORE.search(text[max(0, at - 12) : at]) is not None


def opaque_spans(text: str) -> Iterator[Span]:
    """The secrets of known opaque formats in a text. Spans may overlap between kinds."""
    for known, core, tail in _SEARCHES:
        at = 0
        while found := core.search(text, at):
            start = found.start()
            if starts_a_word(text, start) and known.check(text[start : start + _WINDOW]):
                rest = tail.match(text, found.end())
                at = rest.end() if rest else found.end()
                yield start, at, known.kind
            else:
                at = start + 1
    for kind, pattern in _STRUCTURES:
        if kind == "aws" and "x-amz-signature=" not in text.lower():
            continue  # Without case it cannot be searched fast.
        for found in pattern.finditer(text):
            if starts_a_word(text, found.start()):
                yield found.start(), found.end(), kind


_URL_CORE = rb"://[!$%&*+.0-9;=?A-Z^_a-z~-]{0,128}:[!#$%&*+.0-9:;=?@A-Z^_a-z~-]{1,256}@"
_URL_BYTES = re.compile(_URL_CORE)
_URL = re.compile(r"(://[!$%&*+.0-9;=?A-Z^_a-z~-]{0,128}:)([!#$%&*+.0-9:;=?@A-Z^_a-z~-]{1,256})@")
_TEMPLATE = re.compile(r"\$[A-Za-z({]|%[(s]|\*+\Z|x+\Z|\.+\Z", re.IGNORECASE)


def may_hold_url_password(data: bytes) -> bool:
    """Whether UTF-8 bytes may hold `scheme://user:password@host`. False is certain."""
    return b"@" in data and _URL_BYTES.search(data) is not None


def url_spans(text: str) -> Iterator[Span]:
    """The passwords in URLs. Templates (`$PASS`, `***`) are not passwords."""
    for found in _URL.finditer(text):
        if not _TEMPLATE.match(found[2]):
            yield found.start(2), found.end(2), "url"


_PEM_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY = re.compile(r"[A-Za-z0-9+/=]{40}")
_PEM_CUT = re.compile(r"(?:(?:\\[nr]|\s)*+[A-Za-z0-9+/=]{16,}+)*+")
_PEM_LONGEST = 16_384


def pem_spans(text: str) -> Iterator[Span]:
    """PEM private keys, also those whose end was cut off. A marker without a body (in code) is not a
    key."""
    end = 0
    for begin in _PEM_BEGIN.finditer(text):
        body = begin.end()
        if 0 <= end < body:
            end = text.find("-----END", body)
        if 0 <= end <= body + _PEM_LONGEST:
            if _PEM_BODY.search(text, body, end):
                close = text.find("-----", end + 8, end + 80)
                yield begin.start(), close + 5 if close >= 0 else end + 8, "private_key"
        else:
            cut = _PEM_CUT.match(text, body)
            if cut and cut.end() > body:
                yield begin.start(), cut.end(), "private_key"
