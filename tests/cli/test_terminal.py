"""What agents wrote reaches a terminal as text and as nothing else."""

from __future__ import annotations

import os
import pty
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.cli.terminal import clipped, visible
from tests.cli.conftest import Call, Sample
from tests.cli.support import process

ANY_TEXT = st.text(st.characters(codec=None)) | st.text(alphabet="\x00\x07\x1b[]0;m\x9b\x90\u202e\u2066\ud800\r\n\tab")


@given(ANY_TEXT)
def test_no_control_character_passes(text: str) -> None:
    shown = visible(text)
    assert not [each for each in shown if unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp")]
    turns = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert not turns & {unicodedata.bidirectional(each) for each in shown}
    shown.encode("utf-8")


@given(st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs"))))
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@given(ANY_TEXT, st.integers(1, 50))
def test_a_clipped_text_has_at_most_its_width(text: str, width: int) -> None:
    assert len(clipped(text, width)) <= width
    if len(visible(text)) <= width:
        assert clipped(text, width) == visible(text)


COMMANDS = (("runs",), ("show", "RUN"), ("events", "RUN"), ("tool-calls",), ("show", "RUN", "--steps", "2"))


@pytest.mark.parametrize("args", COMMANDS)
def test_commands_print_no_sequence_from_the_record(sample: Sample, call: Call, args: tuple[str, ...]) -> None:
    answer = call(*(sample.run_id if each == "RUN" else each for each in args))
    assert answer.status == 0
    assert answer.out.replace("\n", "").isprintable()


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colours_only_on_a_terminal_and_without_no_color(sample: Sample, no_color: str, coloured: bool) -> None:
    environment = {"NO_COLOR": no_color, "TERM": "xterm"}
    for args in (("show", sample.run_id), ("runs",)):
        assert b"\x1b" not in process(*args, environment=environment).communicate(timeout=60)[0]
        status, data = _on_terminal(*args, environment=environment)
        assert status == 0
        assert (b"\x1b[" in data) is coloured
        assert b"\x1b]" not in data
        assert b"\xc2\x9b" not in data


def test_on_a_narrow_terminal_an_id_stays_whole(sample: Sample) -> None:
    status, data = _on_terminal("runs", environment={"NO_COLOR": "1", "COLUMNS": "60"})
    assert (status, sample.run_id.encode() in data) == (0, True)


def test_an_artifact_is_not_printed_on_a_terminal(sample: Sample) -> None:
    status, data = _on_terminal("artifact", sample.run_id, "art_x", environment={})
    assert (status, data) == (2, b"")


def _on_terminal(*args: str, environment: dict[str, str]) -> tuple[int, bytes]:
    main, other = pty.openpty()
    started = process(*args, environment=environment, stdout=other)
    os.close(other)
    data = b""
    try:
        while chunk := os.read(main, 65536):
            data += chunk
    except OSError:
        pass  # So Linux reports that nobody writes to a terminal any more.
    os.close(main)
    started.communicate(timeout=60)
    return started.returncode, data
