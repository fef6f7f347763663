"""The tables of `docs/determinism.md` are written from the pool of misuses: `python -m tests.determinism.page`."""

from __future__ import annotations

from pathlib import Path

from tests.determinism.misuses import MISUSES, Verdict

PAGE = Path(__file__).resolve().parents[2] / "docs" / "determinism.md"


def table(verdict: Verdict) -> str:
    """The rows of one verdict."""
    head = {
        "refused": "| in workflow code | what the error says |",
        "drift": "| in workflow code | what is found |",
        "harmless": "| in workflow code | why |",
    }[verdict]
    rows = [f"| {each.what} | {each.says} |" for each in MISUSES.values() if each.verdict == verdict]
    return "\n".join([head, "|---|---|", *rows])


def rendered() -> str:
    """The page with its tables as the pool has them."""
    page = PAGE.read_text(encoding="utf-8")
    for verdict in ("refused", "drift", "harmless"):
        begin, end = f"<!-- {verdict}: written by tests/determinism/page.py -->\n", "<!-- end -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}{table(verdict)}\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(rendered(), encoding="utf-8")
