"""The files of ``deploy/``, read by the programs that they are written for, where those are installed."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from api_server import ApiServer
from doc_pages import ROOT
from rekindle.contract.states import JobState
from rekindle_service.config.settings import Settings

DEPLOY = ROOT / "deploy"
UNITS = ("rekindle.service", "rekindle-user.service")
RULES = DEPLOY / "monitoring" / "alerts.yml"
DASHBOARD = DEPLOY / "monitoring" / "grafana-dashboard.json"


def needs(program: str, package: str) -> pytest.MarkDecorator:
    reason = f"{program} is not installed: apt-get install {package}"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


def output_of(*command: object, **options: object) -> str:
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return str(ran.stdout + ran.stderr)


@needs("systemd-analyze", "systemd")
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_understands_every_line_of_a_unit(unit: str, tmp_path: Path) -> None:
    """The program of the unit is not installed here: a copy names another one."""
    copy = tmp_path / unit
    copy.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", (DEPLOY / unit).read_text(), flags=re.MULTILINE))
    manager = "--user" if "user" in unit else "--system"
    output = output_of(
        "systemd-analyze", manager, "verify", copy, env={"PATH": "/usr/bin", "XDG_RUNTIME_DIR": tmp_path}
    )
    assert unit not in output


@needs("systemd-analyze", "systemd")
def test_the_unit_of_a_machine_is_not_exposed_more_than_jobs_need() -> None:
    output_of("systemd-analyze", "security", "--offline=yes", "--threshold=50", DEPLOY / "rekindle.service")


@pytest.mark.parametrize("unit", UNITS)
def test_a_stop_of_a_unit_leaves_jobs_alone(unit: str) -> None:
    lines = (DEPLOY / unit).read_text().splitlines()
    assert {"KillMode=process", "SendSIGKILL=no", "OOMPolicy=continue", "StartLimitIntervalSec=0"} <= set(lines)
    forbidden = ("PrivateTmp=", "PrivateDevices=", "ProtectClock=", "RuntimeDirectory=", "MemoryDenyWriteExecute=")
    assert not [line for line in lines if line.startswith(forbidden)]


# --- Prometheus and Grafana


@needs("promtool", "prometheus")
def test_the_alerts_fire_when_they_should_and_else_not() -> None:
    assert "SUCCESS" in output_of("promtool", "check", "rules", RULES)
    assert "SUCCESS" in output_of("promtool", "test", "rules", "alerts_test.yml", cwd=RULES.parent)


def test_alerts_and_dashboard_name_metrics_that_exist(server: ApiServer, code: Path) -> None:
    job = server.submit(code, ranks=1)
    known = {"step": 4, "snapshot_step": 3, "progress": 0.5, "goodput": 0.75, "steps_per_second": 2.0}
    server.move(job, JobState.STARTING, JobState.RUNNING, devices=["cpu:0"], **known)
    exposed = text_string_to_metric_families(server.api.get("/metrics").text)
    names = {sample.name for family in exposed for sample in family.samples}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]] + [rule["expr"] for rule in rules]
    used = set(re.findall(r"rekindle_[a-z_]+", " ".join(queries)))
    assert len(queries) > 15
    assert used - names == set()


# --- others


@needs("caddy", "caddy")
def test_caddy_accepts_its_configuration(tmp_path: Path) -> None:
    directories = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "PATH": "/usr/bin"}
    file = DEPLOY / "proxy" / "Caddyfile"
    assert "Valid configuration" in output_of(
        "caddy", "validate", "--adapter", "caddyfile", "--config", file, env=directories
    )


def test_the_container_has_an_init_shared_memory_and_a_port_on_loopback_only() -> None:
    """Docker is not run here: this reads what the files say."""
    service = yaml.safe_load((DEPLOY / "container" / "compose.yml").read_text())["services"]["rekindle"]
    assert service["init"] is True
    assert service["shm_size"] == "8g"
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert {f"REKINDLE_{name.upper()}" for name in Settings.model_fields} >= set(service["environment"])
    dockerfile = (DEPLOY / "container" / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (.+) \S+$", dockerfile, flags=re.MULTILINE)
    assert all((ROOT / path).exists() for paths in copied for path in paths.split())
    assert dockerfile.index("USER rekindle") < dockerfile.index("CMD [")
