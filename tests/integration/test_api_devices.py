"""Putting devices aside by HTTP, and what is shown of them."""

from dataclasses import replace

import pytest

from rekindle.contract.states import JobState


def shown(server):
    return {each["name"]: each for each in server.api.get("/api/v1/devices").json()["items"]}


def test_a_device_that_is_disabled_is_shown_with_its_reason_until_it_is_enabled(server):
    health = server.state.devices.health
    answer = server.api.post("/api/v1/devices/cpu:1/disable", json={"reason": "fan is loud"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["unusable"].endswith(": fan is loud")
    assert answer.json()["disabled"]["by"] is not None
    assert list(health.unusable()) == list(health.failed()) == ["cpu:1"]
    assert shown(server)["cpu:0"]["unusable"] is None
    assert 'rekindle_slots{device="cpu",state="unusable"} 1.0' in server.api.get("/metrics").text
    assert server.api.post("/api/v1/devices/cpu:1/enable").json()["unusable"] is None
    assert (health.failed(), shown(server)["cpu:1"]["disabled"]) == ({}, None)
    server.state.access.audit.flush()
    audited = server.api.get("/api/v1/audit").json()["items"]
    assert ("POST /api/v1/devices/{name}/disable", "cpu:1: fan is loud") in [
        (each["action"], each["detail"]) for each in audited
    ]


def test_a_restarted_server_still_leaves_the_device_aside(server):
    devices = server.state.devices
    server.api.post("/api/v1/devices/cpu:0/disable", json={})
    devices.health.set_failed({})
    devices.refresh()
    assert list(devices.health.failed()) == ["cpu:0"]


@pytest.mark.parametrize("action", ["disable", "enable"])
def test_an_unknown_device_is_named_with_those_that_there_are(server, action):
    answer = server.api.post(f"/api/v1/devices/cuda:9/{action}", json={} if action == "disable" else None)
    assert answer.status_code == 404
    assert answer.json()["detail"] == "this machine has no slot 'cuda:9'; it has cpu:0, cpu:1"


def test_only_administrators_put_devices_aside(server):
    token = server.api.post("/api/v1/tokens", json={"person": "ann"}).json()["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    for action in ("disable", "enable"):
        answer = server.stranger.post(f"/api/v1/devices/cpu:0/{action}", json={}, headers=bearer)
        assert answer.status_code == 403
    assert server.state.devices.health.failed() == {}


def test_a_slot_shows_all_its_jobs_and_what_is_free_of_it(server, code):
    jobs = [server.submit(code) for _ in range(2)]
    for job in jobs:
        row = server.state.store.job(job["id"])
        server.state.store.update_progress(job["id"], spec=replace(row.spec, gpu_share=0.25))
        server.move(job, JobState.STARTING, devices=["cpu:0"])
    slot = shown(server)["cpu:0"]
    assert (set(slot["jobs"]), slot["free_share"]) == ({job["id"] for job in jobs}, 0.5)
    assert (shown(server)["cpu:1"]["jobs"], shown(server)["cpu:1"]["free_share"]) == ([], 1.0)


def test_a_fault_that_a_person_knows_does_not_put_the_device_aside_again(server):
    devices = server.state.devices
    slot = devices.slot("cpu:0")
    assert devices.disable_for(slot, "3 memory errors", 10.0)
    assert not devices.disable_for(slot, "4 memory errors", 11.0), "it is aside already"
    devices.faults = {"cpu:0": ["3 memory errors"]}
    devices.enable(slot, "ann")
    assert not devices.disable_for(slot, "3 memory errors", 1e12)
    assert not devices.disable_for(slot, "an error of before", 12.0)
    assert devices.disable_for(slot, "4 memory errors", 1e12)
    assert devices.health.failed() == {"cpu:0": "4 memory errors"}
