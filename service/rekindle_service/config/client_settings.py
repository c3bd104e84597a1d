"""The settings of the client: defaults < ``rekindle.toml`` in the home < ``REKINDLE_*`` < flags."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from rekindle.contract.field_texts import describe
from rekindle_service.config.home import Home

PREFIX = "REKINDLE_"
"""Beginning of the environment variables of settings."""


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


class ClientSettings(BaseSettings):
    """Where the server is, and with which token. Settings of the server only are not looked at, right or wrong.

    Raises pydantic's ValidationError for a wrong value, SettingsError for a file that is not TOML.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True, json_schema_extra=describe)

    home: Path = Field(default_factory=default_home)
    """Directory of the database, the token and all runs. Default: `~/.rekindle`."""
    socket: Path | None = None
    """UNIX socket for users of this machine. Default: `rekindle.sock` in the home."""
    url: str | None = None
    """URL of the server that the client uses. Default: the server that runs in the home."""
    token: str | None = Field(None, repr=False)
    """Token that the client sends with `url`. Default: the content of `token_file`."""
    token_file: Path | None = None
    """File with the token that the client sends with `url`. Default: `token` is used."""

    @field_validator("home")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        return home.expanduser().absolute()

    @property
    def socket_path(self) -> Path:
        return self.socket or self.home_dir.socket

    @property
    def home_dir(self) -> Home:
        return Home(self.home)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, HomeFile(settings_cls)
