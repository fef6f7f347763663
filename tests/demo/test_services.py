"""The services of the demo's outside world, as processes: what they did is in their log, whatever was answered."""

from __future__ import annotations

import fcntl
import http.client
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from refold.demo.faults import Fault
from refold.demo.log import read_log
from refold.demo.processes import ServiceFailed, running, start
from tests.world.client import ask
from tests.world.world import World

PAYMENTS = "refold.demo.payments"
ORDER = {"order": "7", "amount": "42.00", "currency": "EUR"}


def test_a_key_charges_once_and_gets_the_first_answer_again(world: World) -> None:
    account = world.account()
    first = ask("POST", account.url, ORDER, key="k")
    assert first.status == 201
    assert first.json["request"] == ORDER
    assert ask("POST", account.url, ORDER, key="k") == first
    assert ask("GET", f"{account.url}?key=k").json == first.json
    assert [(line["key"], line["body"]) for line in account.charges()] == [("k", ORDER)]


def test_requests_racing_on_a_key_charge_once(world: World) -> None:
    account = world.account()
    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(lambda _: ask("POST", account.url, ORDER, key="k"), range(24)))
    assert len(answers) == 1
    assert len(account.charges()) == 1


def test_a_key_with_another_body_is_refused(world: World) -> None:
    account = world.account()
    ask("POST", account.url, ORDER, key="k")
    assert ask("POST", account.url, {**ORDER, "amount": "43.00"}, key="k").status == 422
    assert len(account.charges()) == 1


def test_accounts_do_not_share_keys(world: World) -> None:
    one, other = world.account(), world.account()
    ask("POST", one.url, ORDER, key="k")
    assert ask("GET", f"{other.url}?key=k").status == 404
    assert ask("POST", other.url, ORDER, key="k").status == 201
    assert (len(one.charges()), len(other.charges())) == (1, 1)


@pytest.mark.parametrize("key", ["k", None])
def test_a_forgetful_service_charges_for_each_request(world: World, key: str | None) -> None:
    account = world.account(forgetful=True)
    for _ in range(2):
        assert ask("POST", account.url, ORDER, key=key).status == 201
    assert [line["key"] for line in account.charges()] == [key, key]


@pytest.mark.parametrize(
    ("method", "path", "value", "status"),
    [
        ("POST", "", [1], 400),
        ("POST", "", None, 400),
        ("GET", "", None, 400),
        ("GET", "?key=nobody's", None, 404),
        ("PUT", "", ORDER, 405),
        ("POST", "/more", ORDER, 404),
    ],
)
def test_what_is_no_charge_is_refused_and_does_nothing(
    world: World, method: str, path: str, value: object, status: int
) -> None:
    account = world.account()
    assert ask(method, account.url + path, value, key="k").status == status
    assert account.charges() == []


def _outcome(url: str) -> int | str:
    try:
        return ask("POST", url, ORDER, key="k").status
    except http.client.IncompleteRead:
        return "half"
    except http.client.RemoteDisconnected:
        return "closed"
    except ConnectionResetError:
        return "reset"


@pytest.mark.parametrize("acts", [True, False])
@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        *(({"status": status}, status) for status in (408, 409, 422, 425, 429, 500, 503)),
        ({"ends": "close"}, "closed"),
        ({"ends": "reset"}, "reset"),
        ({"ends": "half"}, "half"),
    ],
    ids=str,
)
def test_a_fault_hides_from_the_client_whether_it_was_charged(
    world: World, fault: dict[str, object], outcome: int | str, acts: bool
) -> None:
    account = world.account()
    world.payments.faults.order(Fault(acts=acts, **fault))  # type: ignore[arg-type]
    assert _outcome(account.url) == outcome
    assert len(account.charges()) == acts
    assert _outcome(account.url) == 201
    assert len(account.charges()) == 1


def test_a_connection_that_is_reset_unread_charges_nothing(world: World) -> None:
    account = world.account()
    world.payments.faults.order(Fault(reads=False), times=2)
    for _ in range(2):
        # The kernel may tell of the reset while the request is being written, or afterwards.
        with pytest.raises((ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected)):
            ask("POST", account.url, ORDER, key="k")
    assert account.charges() == []
    assert ask("POST", account.url, ORDER, key="k").status == 201


def test_a_fault_strikes_only_the_requests_that_it_concerns(world: World) -> None:
    account, other = world.account(), world.account()
    path = account.url.removeprefix(world.payments.url)
    world.payments.faults.order(Fault(status=500, path=path, where={"order": "8"}))
    assert ask("POST", account.url, ORDER, key="a").status == 201
    assert ask("POST", other.url, {**ORDER, "order": "8"}, key="b").status == 201
    assert ask("POST", account.url, {**ORDER, "order": "8"}, key="b").status == 500
    world.payments.faults.order(Fault(status=503, method="GET"))
    assert ask("POST", account.url, ORDER, key="c").status == 201
    assert ask("GET", f"{account.url}?key=c").status == 503


@pytest.mark.parametrize(("held", "charged"), [("before acting", 0), ("before answering", 1)])
def test_a_held_request_waits_for_its_release(world: World, held: str, charged: int) -> None:
    account = world.account()
    world.payments.faults.order(Fault(held=held))  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, "POST", account.url, ORDER, key="k")
        world.payments.faults.wait_until_held()
        assert len(account.charges()) == charged
        assert not answer.done()
        assert world.payments.faults.release() == 1
        assert answer.result().status == 201
    assert len(account.charges()) == 1


def test_killed_before_it_answers_it_knows_the_charge_when_it_is_back(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(PAYMENTS, log, control=True) as service, ThreadPoolExecutor(1) as pool:
        service.faults.order(Fault(held="before answering"))
        answer = pool.submit(ask, "POST", f"{service.url}/charges", ORDER, key="k")
        service.faults.wait_until_held()
        os.kill(service.pid, signal.SIGKILL)
        assert isinstance(answer.exception(), OSError | http.client.HTTPException)
        service.stop()
        with running(PAYMENTS, log, port=service.port) as again:
            assert ask("GET", f"{again.url}/charges?key=k").json["request"] == ORDER
            assert ask("POST", f"{again.url}/charges", ORDER, key="k").json["id"] == "ch_1"
    assert len(read_log(log)) == 1


def test_a_half_written_line_was_answered_to_nobody_and_is_cut_off(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(PAYMENTS, log) as service:
        ask("POST", f"{service.url}/charges", ORDER, key="a")
    with log.open("ab") as file:
        file.write(b'{"n": 2, "acc')
    assert len(read_log(log)) == 1
    with running(PAYMENTS, log) as service:
        ask("POST", f"{service.url}/charges", ORDER, key="b")
    assert [(line["n"], line["key"]) for line in read_log(log)] == [(1, "a"), (2, "b")]


def test_a_service_waits_for_the_one_that_writes_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    second = [sys.executable, "-m", PAYMENTS, "--log", str(log)]
    with running(PAYMENTS, log) as first:
        waiting = subprocess.Popen(second, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert waiting.stdout is not None
        assert "waiting for the service" in waiting.stdout.readline()
        ask("POST", f"{first.url}/charges", ORDER, key="a")
    port = int(waiting.stdout.readline())
    assert ask("POST", f"http://127.0.0.1:{port}/charges", ORDER, key="a").json["id"] == "ch_1"
    waiting.kill()
    waiting.communicate()
    assert len(read_log(log)) == 1


def test_a_stopped_service_refuses_connections(tmp_path: Path) -> None:
    with running(PAYMENTS, tmp_path / "log") as service:
        service.stop()
        with pytest.raises(ConnectionRefusedError):
            ask("POST", f"{service.url}/charges", ORDER)


def test_a_service_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = f"""
import time
from pathlib import Path
from refold.demo.processes import start
service = start({PAYMENTS!r}, Path({str(log)!r}))
print("started", flush=True)
time.sleep(600)
"""
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    assert starter.stdout.readline() == "started\n"
    starter.kill()
    starter.communicate()
    # The log's lock is free as soon as its service has ended.
    with log.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def test_a_service_that_cannot_start_is_an_error_with_its_status(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ServiceFailed, match="before it served") as failed:
        start(PAYMENTS, tmp_path / "no such folder" / "log")
    assert failed.value.facts["status"] == 1
    assert "no such folder" in capfd.readouterr().err


def test_without_control_there_is_no_second_port(tmp_path: Path) -> None:
    with running(PAYMENTS, tmp_path / "log") as service:
        assert ask("POST", f"{service.url}/faults", {}).status == 404
        with pytest.raises(ServiceFailed):
            service.faults.forget()


@pytest.mark.parametrize(
    "head", ["POST /charges HTTP/1.1\r\nTransfer-Encoding: chunked", "POST /charges\r\nContent-Length: 0", "\r\n"]
)
def test_an_unreadable_request_is_refused(world: World, head: str) -> None:
    with socket.create_connection(("127.0.0.1", world.payments.port)) as connection:
        connection.sendall(f"{head}\r\n\r\n".encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 400
        answer.close()
