"""The package's face: every promised name is there and typed, and importing the package loads nothing else."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import refold

SOURCE = Path(inspect.getfile(refold))


def test_every_public_name_is_what_its_module_defines() -> None:
    for name in set(refold.__all__) - {"__version__"}:
        value = getattr(refold, name)
        home = getattr(value, "__module__", None)
        if home is not None and home.startswith("refold."):
            assert getattr(sys.modules[home], name) is value, name
            assert inspect.getdoc(value), f"{name} has no docstring"
    assert dir(refold) == sorted(refold.__all__)


def test_type_checkers_and_the_interpreter_see_the_same_names() -> None:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and node.body and isinstance(node.body[0], ast.ImportFrom)
    )
    imports = [each for each in block.body if isinstance(each, ast.ImportFrom)]
    checked = {alias.name: each.module for each in imports for alias in each.names}
    assert checked == refold._HOME_OF
    assert {*checked, "__version__"} == set(refold.__all__)


def test_a_name_that_is_not_public_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="'nothing_like_it'"):
        refold.nothing_like_it  # noqa: B018


def test_importing_refold_loads_neither_a_database_nor_any_other_package() -> None:
    code = "import sys; before = set(sys.modules); import refold; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", _with_path(code)], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert [name for name in loaded if name.startswith("refold")] == ["refold", "refold._version"]
    others = {name.partition(".")[0] for name in loaded} - {"refold"}
    assert others <= sys.stdlib_module_names
    assert not {"asyncio", "sqlite3", "inspect", "dataclasses", "json", "logging", "pathlib"} & others


def test_the_ledger_does_not_load_the_command_line() -> None:
    code = "import sys; from refold import open_ledger; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-c", _with_path(code)], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "refold.ledger.ledger" in loaded
    assert not {"click", "rich", "pydantic", "multiprocessing.pool"} & set(loaded)


def _with_path(code: str) -> str:
    return f"import sys; sys.path.insert(0, {str(SOURCE.parent.parent)!r}); {code}"
