from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import SettingsError

from rekindle.contract.field_texts import field_texts
from rekindle_service.config.client_settings import ClientSettings
from rekindle_service.config.settings import RetentionRules, Settings, unknown_variables, usable_cores


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("HOME", "HOST", "PORT", "CPU_SLOTS", "URL", "TOKEN"):
        monkeypatch.delenv(f"REKINDLE_{name}", raising=False)
    monkeypatch.setenv("REKINDLE_HOME", str(tmp_path))
    return tmp_path


def test_defaults_listen_on_loopback_and_use_every_core(home):
    settings = Settings()
    assert (settings.host, settings.port, settings.cpu_slots) == ("127.0.0.1", 8700, usable_cores())
    assert settings.home_dir.root == home


def test_a_flag_beats_the_environment_which_beats_the_file(home, monkeypatch):
    (home / "rekindle.toml").write_text("port = 1\ncpu_slots = 11\nhost = '127.0.0.2'\n")
    monkeypatch.setenv("REKINDLE_PORT", "2")
    monkeypatch.setenv("REKINDLE_CPU_SLOTS", "22")
    settings = Settings(cpu_slots=33)
    assert (settings.host, settings.port, settings.cpu_slots) == ("127.0.0.2", 2, 33)


def test_the_file_is_looked_for_in_the_home_that_a_flag_names(home, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (home / "rekindle.toml").write_text("port = 1\n")
    (other / "rekindle.toml").write_text("port = 2\n")
    assert Settings(home=other).port == 2


def test_a_table_of_priorities_keeps_what_it_does_not_name_and_preemption_has_three_values(home, monkeypatch):
    (home / "rekindle.toml").write_text(
        "preemption = 'all'\n[max_priority]\nsubmit = 50\n[max_priority.people]\nann = 7\n"
    )
    settings = Settings()
    assert (settings.preemption, settings.max_priority.admin) == ("all", 1000)
    assert settings.max_priority.of("bob", is_admin=False) == 50
    assert settings.max_priority.of("ann", is_admin=False) == 7
    monkeypatch.setenv("REKINDLE_MAX_PRIORITY", '{"submit": 1001}')
    with pytest.raises(ValidationError, match=r"max_priority\.submit"):
        Settings()
    monkeypatch.setenv("REKINDLE_MAX_PRIORITY", "{}")
    monkeypatch.setenv("REKINDLE_PREEMPTION", "true")
    with pytest.raises(ValidationError, match="'off', 'own' or 'all'"):
        Settings()


def test_a_misspelt_setting_in_the_file_is_refused_by_name(home):
    (home / "rekindle.toml").write_text("prot = 1\n")
    with pytest.raises(ValidationError, match="prot"):
        Settings()


def test_a_file_that_is_not_toml_is_refused_with_its_path(home):
    (home / "rekindle.toml").write_bytes(b"\xff\xfe port")
    with pytest.raises(SettingsError, match=r"rekindle\.toml"):
        Settings()


def test_the_file_cannot_choose_another_home(home):
    (home / "rekindle.toml").write_text("home = '/tmp'\n")
    with pytest.raises(SettingsError, match="REKINDLE_HOME"):
        Settings()


@pytest.mark.parametrize(("name", "value"), [("PORT", "65536"), ("PORT", "x"), ("CPU_SLOTS", "-1")])
def test_a_value_out_of_range_is_refused(home, monkeypatch, name, value):
    monkeypatch.setenv(f"REKINDLE_{name}", value)
    with pytest.raises(ValidationError, match=name.lower()):
        Settings()


def test_the_token_is_not_in_the_representation(home):
    assert "sesame" not in repr(Settings(token="sesame"))


def test_a_relative_home_and_a_tilde_become_absolute(home, monkeypatch):
    monkeypatch.chdir(home)
    assert Settings(home=Path("here")).home == home / "here"
    assert Settings(home=Path("~/there")).home == Path.home() / "there"


def test_a_misspelt_variable_is_found_with_the_right_name_and_those_of_jobs_are_known():
    environment = [
        "REKINDLE_CPU_SLOT",
        "REKINDLE_ATTEMPT",
        "REKINDLE_EVENT_JSON",
        "REKINDLE_PORT",
        "REKINDLE_QQQ",
        "PATH",
    ]
    assert unknown_variables(environment) == {"REKINDLE_CPU_SLOT": ["REKINDLE_CPU_SLOTS"], "REKINDLE_QQQ": []}


def test_every_setting_is_described_by_sentences_with_its_default():
    texts = {**field_texts(ClientSettings), **field_texts(RetentionRules), **field_texts(Settings)}
    for name, field in Settings.model_fields.items():
        assert texts[name].endswith("."), name
        shown = field.default not in (None, "", (), {}) and field.default_factory is None
        assert shown or "Default: " in texts[name], name
