"""The lossless value codec: what goes in comes back equal and of the same type, or a typed error.

The stored form (published; never changed, only added to)
---------------------------------------------------------
A value is stored as UTF-8 JSON, without white space, in the writer's order. null, true, false, strings,
finite floats, integers up to 2^53 - 1 in size, lists, and dicts with strings as keys are stored as
themselves. A number with a point or an exponent is a float, any other an integer.

Everything else is a tag: an object with the one key `$`, holding a list that starts with the tag's name.

    {"$":["int","9007199254740992"]}         decimal digits; "0x..." for more than 4,096 bits
    {"$":["float","nan"]}                    or "inf", "-inf". NaN is one value: its payload is not kept
    {"$":["str","caf",55357,"!"]}            text with lone surrogates: numbers between other parts
    {"$":["bytes","AAE="]}                   base64 with padding
    {"$":["decimal","1.50"]}                 digits, exponent and sign as they are
    {"$":["uuid","6ba7b810-9dad-11d1-80b4-00c04fd430c8"]}
    {"$":["date","2025-03-30"]}              ISO 8601; so are the next two, with a fixed offset if any
    {"$":["time","02:30:00"]}                then, where needed, {"zone": IANA key, "name": as the offset was
    {"$":["datetime","2025-03-30T02:30:00+01:00",{"fold":1,"name":"CET"}]}   named, "fold": 1}
    {"$":["timedelta",1,0,500000]}           days, seconds, microseconds
    {"$":["tuple",1,2]}
    {"$":["set","a","b"]}                    and frozenset: in canonical order
    {"$":["map",[1,"a"],[2,"b"]]}            a dict with a key that is not plain text, or the one key "$"
    {"$":["enum","Color","RED",1]}           class, member, its value (left out if it cannot be recorded)
    {"$":["enum","Access",null,3]}           a Flag: its number
    {"$":["object","Order",{"id":1}]}        dataclass, NamedTuple, msgspec Struct, pydantic model: class and
                                             fields; then for a model {"set": [names], "extra": {...},
                                             "private": {...}}, each left out if all, none, none
    {"$":["unset"]}                          msgspec.UNSET

Names of classes resolve through the App's registry and the annotation of the value, never by an import. An
object must have exactly the fields that its class has today. Values nest at most 200 levels deep.

The canonical form, of which digests are made, is RFC 8785 of the same tree after every finite float has
become {"$":["float","3fe0000000000000"]} (its IEEE 754 bits in hexadecimal) and the members of sets, and the
pairs of maps by their keys, are sorted by the bytes of their own canonical forms.

What is not kept: that one list, dict or object stood in two places (it comes back as two equal ones),
UUID.is_safe, cached properties, a NaN's payload.
"""

from refold.events.values.canonical import DIGEST_SIZE, canonical, keyed_digest
from refold.events.values.decoding import decode
from refold.events.values.encoding import encode
from refold.events.values.errors import NotRecordable, ShapeChanged, TypeNameTaken, UnknownType, ValueDamaged
from refold.events.values.registry import Registry
from refold.events.values.tags import MAX_DEPTH

__all__ = [
    "DIGEST_SIZE",
    "MAX_DEPTH",
    "NotRecordable",
    "Registry",
    "ShapeChanged",
    "TypeNameTaken",
    "UnknownType",
    "ValueDamaged",
    "canonical",
    "decode",
    "encode",
    "keyed_digest",
]
