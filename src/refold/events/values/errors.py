"""Why a value could not be recorded, or could not be read back."""

from __future__ import annotations

from refold.errors import RefoldError


class NotRecordable(RefoldError):
    """A value would not come back equal and of the same type, so it was not recorded.

    Facts: `path` of the offending part (`$` is the whole value, then `.name`, `[index]` or `{member}`),
    `type` of that part, `reason`.
    """

    code = "not_recordable"
    exit_status = 2
    remedy = (
        "Turn the part at the named path into JSON, one of the listed standard types, or a dataclass, "
        "NamedTuple, Enum, pydantic model or msgspec Struct that is annotated or registered with the App."
    )


class ValueDamaged(RefoldError):
    """Stored bytes are not a value that refold wrote. Facts: `reason`, and `tag` where one was being read."""

    code = "value_damaged"
    exit_status = 7
    remedy = "Run `refold verify` on the stream that holds the value; restore it from a backup or an archive."


class ShapeChanged(ValueDamaged):
    """A recorded object no longer fits the class of its name. Facts: `type`, `reason`.

    Nothing is filled in, dropped or converted: that would be a substitute for what was recorded.
    """

    code = "shape_changed"
    exit_status = 2
    remedy = (
        "Give the class back the fields it had, or register a class of the old shape under the recorded name "
        "and the new one under another."
    )


class UnknownType(RefoldError):
    """A recorded value names a type that neither the annotation nor the App's registry knows. Facts: `type`.

    Names found in data are never imported.
    """

    code = "unknown_type"
    exit_status = 2
    remedy = "Register the class under the recorded name with the App, or read with the release that wrote it."


class TypeNameTaken(RefoldError):
    """One name was registered for two classes, or one class under two names. Facts: `type`."""

    code = "type_name_taken"
    exit_status = 2
    remedy = "Give each registered class one name of its own: `registry.register(cls, name=...)`."
