"""What users write cannot command the terminal it is shown on."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekindle_service.sanitize import sanitize_line, strip_control

HOSTILE = [
    ("colour", "\x1b[31mred\x1b[0m", "red"),
    ("many parameters", "\x1b[38;2;255;0;0mred", "red"),
    ("colon parameters", "\x1b[4:3mcurly", "curly"),
    ("clear screen", "a\x1b[2Jb", "ab"),
    ("cursor up and erase", "a\x1b[1A\x1b[2Kb", "ab"),
    ("private mode: alternate screen", "\x1b[?1049hx", "x"),
    ("private mode: mouse reports", "\x1b[?1003hx", "x"),
    ("bracketed paste", "\x1b[?2004lx", "x"),
    ("intermediate bytes", "\x1b[4 qx", "x"),
    ("device attributes: the terminal would type an answer", "\x1b[cx", "x"),
    ("cursor position report", "\x1b[6nx", "x"),
    ("soft reset", "\x1b[!px", "x"),
    ("window manipulation: report title", "\x1b[21tx", "x"),
    ("8-bit CSI", "\x9b31mred", "red"),
    ("8-bit CSI with private mode", "\x9b?25lx", "x"),
    ("window title, BEL", "\x1b]0;owned\x07x", "x"),
    ("window title, ST", "\x1b]2;owned\x1b\\x", "x"),
    ("window title, 8-bit ST", "\x1b]0;owned\x9cx", "x"),
    ("8-bit OSC", "\x9d0;owned\x07x", "x"),
    ("8-bit OSC with 8-bit ST", "\x9d0;owned\x9cx", "x"),
    ("hyperlink", "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\", "click"),
    ("clipboard", "\x1b]52;c;cm0gLXJmIH4=\x07x", "x"),
    ("palette change", "\x1b]4;1;rgb:00/00/00\x07x", "x"),
    ("working directory", "\x1b]7;file://evil/tmp\x07x", "x"),
    ("inline image", "\x1b]1337;File=inline=1:AAAA\x07x", "x"),
    ("notification", "\x1b]777;notify;a;b\x07x", "x"),
    ("DCS: sixel", "\x1bPq#0;2;0;0;0#0~~\x1b\\x", "x"),
    ("DCS: request setting", "\x1bP$qm\x1b\\x", "x"),
    ("8-bit DCS", "\x90q~~\x9cx", "x"),
    ("APC: kitty graphics", "\x1b_Gf=100;AAAA\x1b\\x", "x"),
    ("8-bit APC", "\x9fG;AAAA\x9cx", "x"),
    ("PM", "\x1b^secret\x1b\\x", "x"),
    ("8-bit PM", "\x9esecret\x9cx", "x"),
    ("SOS", "\x1bXsecret\x1b\\x", "x"),
    ("8-bit SOS", "\x98secret\x9cx", "x"),
    ("full reset", "\x1bcx", "x"),
    ("character set: line drawing", "\x1b(0x", "x"),
    ("keypad mode", "\x1b=x", "x"),
    ("save and restore cursor", "\x1b7a\x1b8b", "ab"),
    ("7-bit controls announcement", "\x1b Fx", "x"),
    ("single shift", "\x8ex\x8fy", "xy"),
    ("index and reverse index, 8-bit", "\x84a\x8db", "ab"),
    ("bell and backspace", "a\x07b\x08c", "abc"),
    ("shift out", "\x0eabc\x0f", "abc"),
    ("NUL, vertical tab, form feed, DEL", "a\x00b\x0bc\x0cd\x7fe", "abcde"),
    ("carriage return writes over", "good\revil", "good\nevil"),
    ("Windows line end", "a\r\nb", "a\nb"),
    ("an OSC without an end hides nothing", "\x1b]0;title and the error", "0;title and the error"),
    ("an OSC does not swallow the next line", "\x1b]0;a\nb\x07", "0;a\nb"),
    ("a CSI without an end", "a\x1b[", "a"),
    ("a CSI cut by text outside its alphabet", "\x1b[3\u00e9", "3\u00e9"),
    ("a lone escape at the end", "a\x1b", "a"),
    ("an escape in an escape", "\x1b\x1b[31mx", "x"),
    ("a sequence put together by removing another", "\x1b\x00[31mx", "[31mx"),
    ("right-to-left override", "photo_\u202egpj.exe", "photo_gpj.exe"),
    ("isolates", "a\u2066b\u2069c", "abc"),
    ("line separator", "a\u2028b", "a\nb"),
    ("lone surrogate", "a\udc80b", "a\ufffdb"),
    ("ordinary text of the world", "Zürich 東京 🙂 ½", "Zürich 東京 🙂 ½"),
    ("tabs stay", "a\tb", "a\tb"),
]
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_a_hostile_sequence_is_removed_and_the_words_stay(text: str, expected: str) -> None:
    assert strip_control(text) == expected


@given(st.text(alphabet=st.one_of(st.sampled_from("\x1b\x9b\x9d\x90\x9c\x07[]P_\\;0m\r\n"), st.characters())))
def test_no_text_at_all_leaves_a_control_character(text: str) -> None:
    clean = strip_control(text)
    assert not FORBIDDEN.search(clean)
    assert strip_control(clean) == clean
    clean.encode()
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in sanitize_line(text)), "not even in a line"


@pytest.mark.parametrize("introducer", ["\x9d", "\x1b]", "\x9b", "\x1b[", "\x1b ", "\x90q", "\x9b0", "\x1b]a"])
def test_a_megabyte_of_beginnings_without_an_end_is_cleaned_in_one_pass(introducer: str) -> None:
    assert not FORBIDDEN.search(strip_control(introducer * (1_000_000 // len(introducer))))


def test_a_value_stays_one_line_of_text() -> None:
    assert sanitize_line("name\nstate: succeeded\x1b[1A\tx") == "name state: succeeded x"
    assert [sanitize_line(value) for value in (None, 3)] == ["None", "3"]
