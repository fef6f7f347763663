"""Whatever the documentation shows is run, and prints what it says it prints."""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Mismatch, PageRun, blocks

WITH_EXAMPLES = [
    page for page in PAGES if any(each.language in ("python", "console") for each in blocks(page.read_text("utf-8")))
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in that holds the session of the demo, and no setting of the caller's."""
    for name in ("REFOLD_LEDGER", "REFOLD_SCOPE", "REFOLD_APP", "REFOLD_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.chdir(tmp_path)
    with as_file(files("refold.interop.samples").joinpath("demo-session.jsonl")) as session:
        shutil.copy(session, tmp_path / "demo-session.jsonl")
    return tmp_path


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_do_what_it_says(page: Path, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    count = PageRun(str(page.relative_to(ROOT)), lambda: "".join(capfd.readouterr())).run(page.read_text("utf-8"))
    print(f"{count} blocks")


def test_the_readme_and_every_guide_have_examples() -> None:
    guides = {page for page in PAGES if page.parent.name == "guide"}
    assert {ROOT / "README.md", *guides} <= set(WITH_EXAMPLES)


@pytest.mark.parametrize(
    "page",
    [
        "```console\n$ refold runs --json\n{}\n```\n",
        "```console\n$ refold import pi demo-session.jsonl\nrun_01M8KWQBFH1KC224NZ8PMMMGW3  created\n```\n",
        "```console\n$ refold import pi demo-session.jsonl\n...\n$ echo $?\n8\n```\n",
        "```console\n$ refold import pi demo-session.jsonl\n...\nnever printed\n```\n",
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```python\nimport asyncio\nawait asyncio.sleep(0)\nprint(1)\nprint(2)\n```\n```text\n1\n```\n",
    ],
)
def test_a_page_that_says_something_else_is_found(page: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Mismatch):
        PageRun("page", lambda: "".join(capfd.readouterr())).run(page)


def test_an_id_is_the_same_thing_throughout_a_page(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one, other = "run_01M8KWQBFH1KC224NZ8PMMMGW3", "run_01M8KWQBFH1KC224NZ8PMMMGW4"
    begin = f"```console\n$ refold import pi demo-session.jsonl\n{one}[...]\n...\n```\n"
    read = lambda: "".join(capfd.readouterr())  # noqa: E731
    PageRun("page", read).run(f"{begin}```console\n$ refold verify {one}\n...\n```\n")
    with pytest.raises(Mismatch):
        PageRun("page", read).run(f"{begin}```console\n$ refold show {one}\n{other}[...]\n...\n```\n")
