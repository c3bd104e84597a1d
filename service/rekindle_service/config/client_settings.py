"""The settings of the client: defaults < ``rekindle.toml`` in the home < ``REKINDLE_*`` < flags."""

from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from rekindle_service.config.home import Home
from rekindle_service.config.home_file import HomeFile, default_home

PREFIX = "REKINDLE_"
"""Of the environment variables of settings."""


class ClientSettings(BaseSettings):
    """Where the server is, and with which token. Settings of the server only are not looked at, right or wrong.

    Raises pydantic's ValidationError for a wrong value, SettingsError for a file that is not TOML.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    home: Path = Field(
        default_factory=default_home,
        description="Directory of the database, the token and all runs. Default: `~/.rekindle`.",
    )
    socket: Path | None = Field(
        None, description="UNIX socket for users of this machine. Default: `rekindle.sock` in the home."
    )
    url: str | None = Field(
        None,
        description="URL of the server that the client uses. Default: the server that runs in the home.",
    )
    token: str | None = Field(
        None, repr=False, description="Token that the client sends with `url`. Default: the content of `token_file`."
    )
    token_file: Path | None = Field(
        None, description="File with the token that the client sends with `url`. Default: `token` is used."
    )

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
