"""What an App is set to, apart from its code: the contracts of its tools and the settings of its models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from refold.events import values
from refold.events.identity import keyed_digest
from refold.events.values import NotRecordable

if TYPE_CHECKING:
    from refold.gateway.models import Provider
    from refold.gateway.tools import Tool
    from refold.runtime.app import App

_TERMS = ("version", "effect", "key", "key_life", "timeout", "settle", "on_cancel", "marks_sending")


def configuration(app: App) -> dict[str, Any]:
    """The tools and models of an App by name, as plain values."""
    return {
        "tools": {name: _tool(tool) for name, tool in sorted(app.tools.items())},
        "models": {name: _model(provider) for name, provider in sorted(app.models.items())},
    }


def config_digest(app: App, secret: bytes) -> str | None:
    """A digest of the configuration, keyed with the scope's secret; None where a model's settings cannot be recorded.
    Equal configurations have equal digests, in every process.
    """
    try:
        encoded = values.canonical(values.encode(configuration(app)))
    except NotRecordable:
        return None
    return keyed_digest(secret, "configuration", encoded).hex()


def _tool(tool: Tool[Any, Any]) -> dict[str, Any]:
    return {**{term: getattr(tool, term) for term in _TERMS}, "retry": msgspec.to_builtins(tool.retry)}


def _model(provider: Provider) -> dict[str, Any]:
    return {"provider": provider.name, "model": provider.model, "settings": dict(provider.settings)}
