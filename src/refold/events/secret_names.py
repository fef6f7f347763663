"""Which names promise a secret: `db_password` does, `max_tokens` does not.

The same judgement serves the keys of JSON objects and the names in assignments inside text. Names are
compared without case, `-`, `_`, `.` and spaces, and by their words (camelCase is split), so that a
prefix (`openaiApiKey`) or a suffix (`password_prod`) changes nothing, whereas a word that merely
describes (`token_count`, `password_url`) does.
"""

from __future__ import annotations

import re
from functools import lru_cache

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SEPARATORS = str.maketrans("", "", "-_. ")

# Found anywhere in the squashed name: long enough never to be a part of an innocent word. ASCII only,
# because lower() makes letters out of signs (the Kelvin sign) that the scan of the bytes does not know.
_SQUASHED = re.compile(
    r"password|passwd|passphrase|passcode|apikey|accesskey|privatekey|secretkey|signingkey|encryptionkey|"
    r"accountkey|masterkey|credential|authorization|(?:access|refresh|auth|api|bearer|bot)tokens",
    re.IGNORECASE | re.ASCII,
)
# Only as words of their own: `secretary`, `tokenizer` and `cookiecutter` are other words.
_WORD_TERMS = frozenset({"secret", "secrets", "pwd", "cookie", "cookies", "jwt"})
_GLUED = ("accesstoken", "refreshtoken", "authtoken", "apitoken", "bottoken", "clientsecret", "appsecret")

# A secret term followed by one of these is told about, not told: its kind, its place, its size, its rules.
_ABOUT_WORDS = """
    alg algorithm allowed arn attempts audience banner bytes changed charset class column consent count
    created ctx description domain enabled endpoint env error exists expiration expired expires expiry
    field file filename format function handler header headers help hint id ids idx index input issuer
    label len length level limit link location logprob logprobs manager max message min missing mode name
    names needed number offset option options order param parameter parser path placeholder policy pos
    position prefix present prompt provider ratio reference regex required requirements reset rotation
    rule rules schema scope scopes size source status store stream strength title ttl typ type types uri
    url usage used valid validation validator version
"""
_ABOUT = frozenset(_ABOUT_WORDS.split())
# Before `token`: what a model or a pager calls a token.
_COUNTED_WORDS = """
    audio bos cached cancel cancellation cls completion continuation continue current cursor end eos
    first image input keyword last lexer lookahead mask max min next num output pad page pagination per
    prev previous prompt reasoning sep special start stop sub sync syntax text total unk word
"""
_COUNTED = frozenset(_COUNTED_WORDS.split())


@lru_cache(maxsize=4096)
def is_secret_key(name: str) -> bool:
    """Whether a value under this name is a secret whatever it looks like.

    Names longer than 128 characters are never judged secret: no program names a field so, and hostile output
    must not fill the cache with them.
    """
    if len(name) > 128:
        return False
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _ABOUT:
        return False
    if _SQUASHED.search(name.translate(_SEPARATORS)):
        return True
    for at, word in enumerate(words):
        if word == "token":
            if "count" not in words and (not at or words[at - 1] not in _COUNTED):
                return True
        elif word in _WORD_TERMS or word.endswith(_GLUED):
            return True
    return False


# The terms over bytes, lower-cased, without separators and without the vowels a, e, i, u (o stays, or
# `cookie` would be `ck`): a shorter text is searched faster. Terms with a rare letter are found by that
# letter, because a search for one byte is many times as fast as one for a word.
_LOWER = bytes.maketrans(bytes(range(256)), bytes(range(256)).lower())
_DROPPED = b"-_. aeiuAEIU"
_WITH_K = re.compile(
    rb"k(?:y(?:(?<=pky)|(?<=ccssky)|(?<=prvtky)|(?<=sgnngky)|(?<=ptonky)|(?<=mstrky)|(?<=ccontky))|(?<=cook))"
)
# `bsc`: `Basic dXNlcjpw...` is too short for the search for long runs.
_WITH_C = re.compile(rb"c(?:rt(?<=scrt)|rdntl|od(?<=psscod)|(?<=bsc))")
_WITH_W = re.compile(rb"w(?:(?<=pssw)|d(?<=pwd)|t(?<=jwt))")
_WITH_Z = re.compile(rb"z(?<=thorz)")
_WITH_EQUALS = re.compile(rb"=(?<=sg=)")
# `tokens` and `tokenizer` fill every model's usage; a plural is secret only after a few words.
_TOKEN = re.compile(rb"oken(?!s|iz)")
_CAPITAL_TOKEN = re.compile(rb"OKEN(?!S(?![a-z])|IZ)")
_PLURAL = re.compile(rb"tokns(?:(?<=ccsstokns)|(?<=rfrshtokns)|(?<=thtokns)|(?<=ptokns)|(?<=brrtokns)|(?<=bottokns))")


def may_name_secret(data: bytes) -> bool:
    """Whether UTF-8 bytes (text, or JSON without escapes of ASCII letters) may hold a secret name.

    False is certain, True is a suspicion.
    """
    normal = data.translate(_LOWER, _DROPPED)
    if (
        b"pssphrs" in normal
        or _WITH_C.search(normal)
        or _WITH_K.search(normal)
        or _WITH_W.search(normal)
        or _WITH_Z.search(normal)
        or _WITH_EQUALS.search(normal)
    ):
        return True
    return b"tokn" in normal and bool(_TOKEN.search(data) or _CAPITAL_TOKEN.search(data) or _PLURAL.search(normal))
