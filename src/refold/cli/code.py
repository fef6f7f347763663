"""Where the code of runs comes from: an App or a workflow that somebody names, as `package.module:name`.

Only what the command line, the environment or a settings file of the user's own names is imported. What a record or
somebody else's file says is shown, never imported.
"""

from __future__ import annotations

import importlib
import operator
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from refold.cli.settings import Setting
from refold.errors import RefoldError

if TYPE_CHECKING:
    from refold.runtime.app import App
    from refold.runtime.workflow import Workflow

_TARGET = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\Z")


class AppMissing(RefoldError):
    """The command runs code of yours, and nothing says where it is."""

    code = "app_missing"
    exit_status = 2
    remedy = 'Name the App: --app package.module:app, REFOLD_APP, or `app = "package.module:app"` in refold.toml.'


class BadTarget(RefoldError):
    """What was named as `package.module:name` cannot be imported, or is not what the command needs."""

    code = "bad_target"
    exit_status = 2
    remedy = "Name it as package.module:name; modules are looked for as `python -m` does, from the current folder."


class ForeignSettings(RefoldError):
    """A refold.toml of another user names the code to run. Code is not imported on somebody else's word."""

    code = "foreign_settings"
    exit_status = 6
    remedy = "If you trust that code, name it yourself: --app package.module:app, or REFOLD_APP."


def load_app(setting: Setting) -> App:
    """The App that a setting names. Raises AppMissing, BadTarget, ForeignSettings."""
    from refold.runtime.app import App

    if not setting.value:
        raise AppMissing("This command runs code, and no App is named.")
    folder = Path.cwd()
    if setting.file is not None:
        folder = setting.file.parent
        owner = setting.file.stat().st_uid
        if owner not in (os.getuid(), 0):
            raise ForeignSettings(
                f"{setting.file} belongs to another user and names {setting.value!r} as the code to run.",
                file=str(setting.file),
                app=setting.value,
            )
    _, found = _load(setting.value, folder)
    if not isinstance(found, App):
        raise BadTarget(f"{setting.value} is a {type(found).__name__} and not an App.", target=setting.value)
    return found


def load_workflow(target: str, setting: Setting) -> tuple[App, Workflow]:
    """The workflow that a target names, and its App: `package.module:workflow`, or the name that it has in the App of
    the settings. Raises AppMissing, BadTarget, ForeignSettings, NotRegistered.
    """
    if ":" not in target:
        app = load_app(setting)
        return app, app.find_workflow(target)
    from refold.runtime.app import App
    from refold.runtime.workflow import Workflow

    module, found = _load(target, Path.cwd())
    if isinstance(found, App):
        raise BadTarget(f"{target} is an App; name one of its workflows.", target=target)
    if not isinstance(found, Workflow):
        raise BadTarget(f"{target} is a {type(found).__name__} and not a workflow.", target=target)
    apps = [each for each in vars(module).values() if isinstance(each, App)]
    if setting.value:
        apps.append(load_app(setting))
    for app in apps:
        with suppress(RefoldError):
            if app.find_workflow(found.name, found.version) is found:
                return app, found
    raise BadTarget(
        f"{target} is a workflow, and its App is not in that module.",
        remedy="Name the App too: --app package.module:app.",
        target=target,
    )


def _load(target: str, folder: Path) -> tuple[ModuleType, Any]:
    found = _TARGET.match(target)
    if found is None:
        raise BadTarget(f"{target!r} does not name anything.", target=target)
    name, attribute = found.groups()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(name)
        return module, operator.attrgetter(attribute)(module)
    except AttributeError as error:
        raise BadTarget(f"{target} cannot be found: {error}.", target=target) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # A script ends with SystemExit, which would be taken for our own status.
        raise BadTarget(f"{name} cannot be imported: {type(error).__name__}: {error}.", target=target) from error
