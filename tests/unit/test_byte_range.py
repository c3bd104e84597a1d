import pytest

from rekindle_service.api.problems import ApiError
from rekindle_service.api.routes.log_routes import parse_range


def test_one_range_of_bytes_is_parsed_and_anything_else_ignored() -> None:
    ranges = {
        "bytes=0-0": (0, 1),
        "bytes=2-4": (2, 5),
        "bytes=2-": (2, 10),
        "bytes=-3": (7, 10),
        "bytes=-99": (0, 10),
        "bytes=5-99": (5, 10),
        "BYTES=5-6": (5, 7),
    }
    assert {header: parse_range(header, 10) for header in ranges} == ranges
    ignored = ("", "bytes", "bytes=", "bytes=-", "bytes=4-2", "bytes=0-1,3-4", "lines=1-2", "bytes=\u0661-")
    for header in (*ignored, "bytes=" + "9" * 5000):
        assert parse_range(header, 10) is None, header


def test_a_range_beyond_the_end_cannot_be_satisfied() -> None:
    for header, size in (("bytes=10-", 10), ("bytes=99-100", 10), ("bytes=0-", 0), ("bytes=-0", 10)):
        with pytest.raises(ApiError):
            parse_range(header, size)
