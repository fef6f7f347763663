"""Starting and stopping the demo's services, and ordering faults of them."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from refold.demo.faults import Fault
from refold.demo.log import read_log
from refold.demo.wire import LOOPBACK
from refold.errors import RefoldError

__all__ = ["Faults", "ServiceFailed", "ServiceProcess", "running", "start"]

# Who waits longer than this waits for something that will not happen.
_PATIENCE_S = 60


class ServiceFailed(RefoldError):
    """A process of the demo's outside world ended before it served, or did not do what its control was asked for."""

    code = "demo_service_failed"
    exit_status = 1
    remedy = "Read what it wrote to standard error above; its log must be a file that can be written."


class Faults:
    """A service's control. Its calls block; code on an event loop makes them in a thread."""

    def __init__(self, port: int) -> None:
        self._port = port

    def order(self, fault: Fault, times: int = 1) -> None:
        """The next `times` requests that the fault concerns have it."""
        self._ask("POST", "/faults", {"fault": asdict(fault), "times": times})

    def forget(self) -> None:
        """Take back what was ordered and has not happened."""
        self._ask("DELETE", "/faults")

    def wait_until_held(self, count: int = 1) -> None:
        """Return as soon as so many requests are held at once."""
        self._ask("GET", f"/held?count={count}")

    def release(self) -> int:
        """Let the held requests go on; how many they were."""
        released: int = self._ask("POST", "/release")["released"]
        return released

    def _ask(self, method: str, path: str, value: Any = None) -> Any:
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=_PATIENCE_S)
        try:
            connection.request(method, path, None if value is None else json.dumps(value))
            answer = connection.getresponse()
            body = answer.read()
        except TimeoutError as problem:
            raise ServiceFailed(f"Nothing came of {method} {path} in {_PATIENCE_S} s.") from problem
        finally:
            connection.close()
        if answer.status != 200:
            raise ServiceFailed(f"The control answered {answer.status} to {method} {path}.", status=answer.status)
        return json.loads(body)


class ServiceProcess:
    """A service that runs. It ends with this process at the latest, also when that is killed."""

    def __init__(self, process: subprocess.Popen[str], port: int, control_port: int | None, log: Path) -> None:
        self.port = port
        self.url = f"http://{LOOPBACK}:{port}"
        self.log = log
        self._process = process
        self._control_port = control_port

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def faults(self) -> Faults:
        if self._control_port is None:
            raise ServiceFailed("The service was started without its control.")
        return Faults(self._control_port)

    def lines(self) -> list[dict[str, Any]]:
        """What its log says that it did."""
        return read_log(self.log)

    def stop(self) -> None:
        """End it at once: a service of the demo has nothing to put in order. Afterwards its port refuses."""
        self._process.kill()
        self._process.communicate()


def start(module: str, log: Path, words: Sequence[str] = (), *, port: int = 0, control: bool = False) -> ServiceProcess:
    """Run `python -m module` and return when it serves.

    Parameters
    ----------
    log: its log; one that is there is gone on with.
    words: further options of that service.
    port: 0 takes a free one.
    control: whether faults can be ordered.

    Raises
    ------
    ServiceFailed: it ended before it served.
    """
    line = [sys.executable, "-m", module, "--port", str(port), "--log", str(log), "--until-stdin-closes", *words]
    if control:
        line.append("--control")
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        ports = _ports(process, 2 if control else 1)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    if len(ports) < (2 if control else 1):
        process.communicate()
        raise ServiceFailed(
            f"{module} ended with {process.returncode} before it served.", module=module, status=process.returncode
        )
    return ServiceProcess(process, ports[0], ports[1] if control else None, log)


def _ports(process: subprocess.Popen[str], count: int) -> list[int]:
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(count)]
    return [int(line) for line in said if line]


@contextmanager
def running(
    module: str, log: Path, words: Sequence[str] = (), *, port: int = 0, control: bool = False
) -> Iterator[ServiceProcess]:
    """`start` for the length of a `with` block."""
    service = start(module, log, words, port=port, control=control)
    try:
        yield service
    finally:
        service.stop()
