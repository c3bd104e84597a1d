import pytest

from rekindle_service.api.middleware import TrustedHostMiddleware, host_name

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 compared with, not bound to


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:80", "localhost"),
        ("127.0.0.1:8700", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("[::1]:8700", "[::1]"),
        ("::1", "::1"),
        ("::1:80", "::1:80"),
        ("localhost:", "localhost"),
        ("localhost:x", "localhost:x"),
        ("evil:80:80", "evil:80:80"),
        ("", ""),
    ],
)
def test_the_name_in_a_host_header_is_found(header: str, name: str) -> None:
    assert host_name(header) == name


async def _nothing(*_: object) -> None:
    raise AssertionError


@pytest.mark.parametrize(
    ("host", "name", "trusted"),
    [
        ("127.0.0.1", "localhost", True),
        ("127.0.0.1", "10.0.0.5", False),
        ("gpu-box.lan", "gpu-box.lan", True),
        ("gpu-box.lan", "127.0.0.1", True),
        ("gpu-box.lan", "lan", False),
        ("fd00::1", "[fd00::1]", True),
        ("fd00::1", "fd00::1", False),
        (ANY_ADDRESS, "10.0.0.5", True),
        (ANY_ADDRESS, "evil.example", False),
        (ANY_ADDRESS, "10.0.0.5.evil.example", False),
        ("::", "[fd00::1]", True),
        ("::", "0x7f000001", False),
    ],
)
def test_a_server_trusts_only_its_own_names(host: str, name: str, trusted: bool) -> None:
    assert TrustedHostMiddleware(_nothing, host)._is_trusted(name) is trusted
