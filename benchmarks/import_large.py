"""Imports a generated session of any size, killing the process and going on: `import_large.py BYTES [KILLS]`.

Prints what each child process used at most and ends with 1 if one held more than 250 MB, or if the run is not what it
must be. The session and the ledger stand in a temporary folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.generate_session import write_session
from refold.interop.importers import Progress, import_paths
from refold.ledger.ledger import open_ledger

ALLOWED = 250_000_000


def child(folder: Path, path: Path, stop_at: float | None) -> None:
    """Imports; with `stop_at`, dies by SIGKILL once that share of the file is durable."""
    began = time.monotonic()

    def watch(progress: Progress) -> None:
        share = progress.done / progress.total
        rate = progress.done / (time.monotonic() - began) / 1e6
        print(f"\r{share:6.1%}  {progress.events:>9} events  {rate:5.1f} MB/s ", end="", file=sys.stderr, flush=True)
        if stop_at is not None and share >= stop_at:
            print(json.dumps({"peak": _peak(), "killed_at": share}), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    async def run() -> dict[str, Any]:
        async with await open_ledger(folder / "ledger.db") as ledger:
            report = await import_paths(ledger.scope(), "pi", [path], watch)
        return report.as_dict()

    (one,) = asyncio.run(run())["runs"]
    print(json.dumps({"peak": _peak(), "seconds": round(time.monotonic() - began, 1), **one}), flush=True)


def _peak() -> int:
    """Bytes that this process held at most. Not `ru_maxrss`: that begins with what its parent held before the exec."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def prove(size: int, kills: int, say: Any = print) -> bool:
    """Whether a session of `size` bytes comes in whole, within the memory allowed, though the process is killed."""
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), Path(name) / "session.jsonl"
        lines = write_session(path, size)
        say(f"{path.stat().st_size} bytes, {lines} records")
        peaks = []
        for number in range(kills + 1):
            stop_at = (number + 0.5) / (kills + 1) if number < kills else None
            answer = _in_child(folder, path, stop_at)
            say(answer)
            peaks.append(answer["peak"])
        whole = answer.get("errors") == [] and answer["events"] > lines and answer["added"] < answer["events"]
        say(f"at most {max(peaks) / 1e6:.0f} MB resident; allowed {ALLOWED / 1e6:.0f}")
        return bool(whole) and max(peaks) <= ALLOWED


def _in_child(folder: Path, path: Path, stop_at: float | None) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.import_large", "--child", str(folder), str(path), str(stop_at or "")]
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1], check=False)
    if done.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the import ended with {done.returncode}")
    text = done.stdout.decode()
    answer: dict[str, Any] = json.loads(text[text.rindex('{"peak"') :])
    return answer


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]) if sys.argv[4] else None)
    else:
        sys.exit(0 if prove(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2) else 1)
