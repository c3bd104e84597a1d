import json
import os
import subprocess
import sys

import pytest

from rekindle.contract.locks import lock_holder
from rekindle_service.config.home import Home, HomeInUseError, is_job_id, new_job_id


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


def mode(path):
    return path.stat().st_mode & 0o777


def test_only_the_owner_can_read_a_home_even_if_it_was_open_to_others(home, tmp_path):
    assert mode(home.root) == 0o700
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    Home(shared).create()
    assert mode(shared) == 0o700


def test_a_directory_that_others_use_is_neither_taken_nor_closed(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(HomeInUseError, match="holds other files"):
        Home(tmp_path).create()
    assert mode(tmp_path) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_token_is_made_once_and_is_for_the_owner_alone(home):
    home.token.write_text("\n")
    token = home.ensure_token()
    assert len(token) >= 40, "an empty file is replaced"
    home.token.unlink()
    token = home.ensure_token()
    assert len(token) >= 40
    assert home.ensure_token() == token
    assert mode(home.token) == 0o600


def test_the_announcement_is_private_and_removed_with_its_server_but_not_by_another(home):
    home.write_server_info("http://127.0.0.1:1")
    assert json.loads(home.server_json.read_text())["pid"] == os.getpid()
    assert mode(home.server_json) == 0o600
    home.remove_server_info()
    assert not home.server_json.exists()
    home.server_json.write_text('{"url": "http://127.0.0.1:1", "pid": 1, "started_at": 0}')
    home.remove_server_info()
    assert home.server_json.exists()


@pytest.fixture
def holder(home):
    """A process that owns the home; it restores the lock when it reads a line."""
    hold = "import sys; from rekindle_service.config.home import Home; from pathlib import Path\n"
    hold += "home = Home(Path(sys.argv[1])); lock = home.lock(); home.write_server_info('http://127.0.0.1:1')\n"
    hold += "print('held', flush=True)\n"
    hold += "for line in sys.stdin: lock.restore(); print('restored', flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", hold, str(home.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_second_server_is_refused_with_the_process_of_the_first(home, holder):
    with pytest.raises(HomeInUseError, match=f"pid {holder.pid}"):
        home.lock()
    holder.kill()
    holder.wait()
    home.lock().release()


@pytest.mark.parametrize("names", [["server.lock"], ["server.lock", "server.json"]])
def test_a_second_server_is_refused_where_the_lock_of_the_first_was_removed_and_the_first_restores_it(
    home, holder, names
):
    for name in names:
        (home.root / name).unlink()
    with pytest.raises(HomeInUseError, match=f"pid {holder.pid}" if len(names) == 1 else "another server"):
        home.lock()
    assert not home.server_lock.exists()
    home.server_lock.touch()
    holder.stdin.write(b"restore\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == b"restored\n"
    assert lock_holder(home.server_lock) == holder.pid


def test_every_new_job_id_is_another_one_and_none_can_be_a_path(home):
    ids = {new_job_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(is_job_id(one) for one in ids)
    for name in ("", "..", "../../../x", "abcdefghi", "abcdefghijk", "ABCDEFGHIJ", "abcdefghi\n", "a/b/c/d/e/"):
        with pytest.raises(ValueError, match="job id"):
            home.run_dir(name)
