"""``rekindle.toml``: the settings that are stored in the home."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource, SettingsError


def default_home() -> Path:
    return Path.home() / ".rekindle"


def settings_file(home: Path) -> Path:
    return home.expanduser() / "rekindle.toml"


def read_settings_file(home: Path) -> dict[str, Any]:
    """What the file of ``home`` sets, right or wrong; nothing where there is none. Raises SettingsError."""
    path = settings_file(home)
    try:
        values = tomllib.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} must be readable TOML: {error}") from error
    if "home" in values:
        raise SettingsError(f"{path} cannot set home: it is looked for in the home; use REKINDLE_HOME or --home")
    return values


class HomeFile(PydanticBaseSettingsSource):
    """``rekindle.toml`` in the home that flags and environment have chosen; it cannot choose another home itself."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self().get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return read_settings_file(Path(self.current_state.get("home", default_home())))
