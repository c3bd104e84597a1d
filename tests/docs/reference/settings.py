"""The page of all settings, from their definition."""

import re
from collections.abc import Iterator

from docs.reference.json_schema import Schema, default, limits, type_name
from docs.reference.markdown import GENERATED, code, table
from rekindle_service.config.settings import RetentionRules, Settings

_COMPUTED = {"home": "`~/.rekindle`", "cpu_slots": "the cores that the server may use"}
_PAGE = re.compile(r"\b(docs|deploy)/(\w+\.md)")

_INTRODUCTION = """\
A setting is looked for in this order, and the first that is found counts: a flag of the command, the environment
variable, `rekindle.toml` in the home directory, the default.

```toml
# ~/.rekindle/rekindle.toml
cpu_slots = 8
keep_jobs_days = 30
```

`rekindle serve` reads the file when it starts: restart it after a change, which affects no running job. It does not
start with a wrong value or a name that is not in this table. Commands that talk to a server read `home`, `socket`,
`url`, `token` and `token_file` only, and warn of unknown names. In the environment, lists and tables are JSON.

While a server runs, `server.json` in the home directory has its `url`, `pid` and `started_at`; the token is in the file
`token` of the same directory."""


def lines() -> Iterator[str]:
    """The whole page."""
    yield from ("# Settings", "", GENERATED, "", *_INTRODUCTION.splitlines(), "")
    schemas = Settings.model_json_schema()["properties"]
    header = ("setting", "environment", "value", "default", "means")
    yield from table(
        header, (_row(name, schemas[name]) for name in sorted(schemas, key=RetentionRules.model_fields.__contains__))
    )


def _row(name: str, schema: Schema) -> tuple[str, str, str, str, str]:
    means = _PAGE.sub(_link, " ".join(schema["description"].split()))
    shown = _COMPUTED.get(name) or default(schema) or "none"
    return code(name), code(f"REKINDLE_{name.upper()}"), _value(schema), shown, means


def _link(page: re.Match[str]) -> str:
    directory, name = page.groups()
    return f"[{name}](../{name})" if directory == "docs" else f"[{page[0]}](../../{page[0]})"


def _value(schema: Schema) -> str:
    return " ".join(filter(None, (type_name(schema, lambda name: "table"), limits(schema))))
