"""Fail when a source file has outgrown its room (400 lines)."""

import sys
from pathlib import Path

LIMIT = 400
ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    too_long = [
        (count, path.relative_to(ROOT))
        for folder in ("src", "tests", "tools", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > LIMIT
    ]
    for count, path in too_long:
        print(f"{path}: {count} lines; a room holds {LIMIT}. Split it by reason to change.")
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
