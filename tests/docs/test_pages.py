"""What pages refer to exists: tests behind guarantees, links between pages, names of commands."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from refold.cli.commands import COMMANDS
from refold.ledger.conformance import CHECKS
from refold.replay.kinds import KINDS
from tests.docs.pages import PAGES, ROOT

GUARANTEES = ROOT / "docs" / "guarantees.md"
_NAMED = re.compile(r"`((?:src|tests)/[\w/]+\.py)(?:::(\w+))?`")
_LINK = re.compile(r"\]\(([^)#\s]+)?(?:#([\w-]+))?\)")
_PATH = re.compile(r"`((?:src|tests|tools|benchmarks|docs)/[\w./-]+)`")
_COMMAND = re.compile(r"`refold (?:--\w+ \S+ )*([a-z][a-z-]+)")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@cache
def _defined(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))


def test_every_guarantee_names_tests_that_exist_and_run() -> None:
    promises = re.split(r"^- ", GUARANTEES.read_text("utf-8"), flags=re.MULTILINE)[1:]
    assert len(promises) > 50
    checks = {check.__name__ for _, check in CHECKS}
    for promise in promises:
        named = _NAMED.findall(promise)
        assert named, f"no test holds this: {promise}"
        assert any(path.startswith("tests/") or "/conformance/" in path for path, _ in named), promise
        for path, name in named:
            assert (ROOT / path).is_file(), path
            assert name in _defined(ROOT / path), f"{path} has no {name}"
            if name.startswith("check_"):
                assert name in checks, f"{name} is not run"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = _FENCED.sub("", page.read_text("utf-8"))
    for target, anchor in _LINK.findall(text):
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{target} is not there"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}, anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_that_a_page_names_exist(page: Path) -> None:
    for path in _PATH.findall(page.read_text("utf-8")):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_a_page_names_exist(page: Path) -> None:
    names = {command.name for command in COMMANDS}
    assert set(_COMMAND.findall(page.read_text("utf-8"))) <= names


def test_the_readme_s_table_of_replays_is_the_code_s() -> None:
    rows = re.findall(r"^\| (\d) \| (.+?) \| (.+?) \| (.+?) \|", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    said = [(int(number), name, executes, costs) for number, name, executes, costs in rows]
    assert said == [(kind.number, kind.name, ", ".join(kind.executes) or "nothing", kind.cost) for kind in KINDS]
