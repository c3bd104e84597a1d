import pytest

from rekindle.keeper.attempt.shutdown import machine_is_stopping


@pytest.mark.parametrize(
    ("answer", "is_stopping"),
    [("echo stopping; exit 1", True), ("echo running", False), ("echo degraded; exit 1", False), ("kill -9 $$", False)],
)
def test_systemd_is_asked_whether_the_machine_is_stopping(tmp_path, monkeypatch, answer, is_stopping):
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f'#!/bin/sh\n[ "$1" = is-system-running ] || exit 2\n{answer}\n')
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert machine_is_stopping(systemd=tmp_path) is is_stopping


def test_without_systemd_no_machine_is_known_to_stop(tmp_path, monkeypatch):
    assert not machine_is_stopping(systemd=tmp_path / "missing")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not machine_is_stopping(systemd=tmp_path)
