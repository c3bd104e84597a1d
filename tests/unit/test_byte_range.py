import pytest

from rekindle_service.api.byte_range import UnsatisfiableRangeError, parse_range


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=2-4", (2, 5)),
        ("bytes=2-", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-99", (0, 10)),
        ("bytes=5-99", (5, 10)),
        ("BYTES=5-6", (5, 7)),
    ],
)
def test_one_range_of_bytes_is_understood(header: str, expected: tuple[int, int]) -> None:
    assert parse_range(header, 10) == expected


@pytest.mark.parametrize(
    "header",
    [
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=4-2",
        "bytes=0-1,3-4",
        "lines=1-2",
        "bytes=\u0661-",
        "bytes=" + "9" * 5000,
    ],
)
def test_what_is_no_single_range_is_ignored(header: str) -> None:
    assert parse_range(header, 10) is None


@pytest.mark.parametrize(
    ("header", "size"), [("bytes=10-", 10), ("bytes=99-100", 10), ("bytes=0-", 0), ("bytes=-0", 10)]
)
def test_a_range_behind_the_end_cannot_be_satisfied(header: str, size: int) -> None:
    with pytest.raises(UnsatisfiableRangeError):
        parse_range(header, size)
