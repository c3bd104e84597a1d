"""The page of the machine."""

from typing import Any

from playwright.sync_api import Page, Route, expect


def test_gpus_are_shown_with_their_use(page: Page) -> None:
    """There is no GPU here: what the server would say of one is added to its answer."""
    page.route("**/api/v1/machine*", _with_gpu)
    page.goto("/machine")
    row = page.locator("#devices tr").first
    expect(row).to_contain_text("NVIDIA H200")
    expect(row).to_contain_text("87 %")
    expect(row).to_contain_text("70.0 GB of 140.0 GB")
    expect(row).to_contain_text("61 °C")
    expect(row).to_contain_text("512 W")
    expect(page.locator("#history-charts figcaption").first).to_contain_text("GPU utilization")
    expect(page.locator("#history-charts .plot[aria-description^='1 curve of']")).to_have_count(5)


def test_an_administrator_puts_a_device_aside_and_uses_it_again(page: Page) -> None:
    page.goto("/machine")
    row = page.locator("#devices tr").filter(has_text="cpu:3")
    row.get_by_role("button", name="Disable cpu:3").click()
    page.get_by_label("Reason").fill("fan is <b>loud</b>")
    page.locator("#confirm-yes").click()
    expect(row).to_contain_text("fan is <b>loud</b>")
    expect(row).to_have_class("put-aside")
    row.get_by_role("button", name="Enable cpu:3").click()
    expect(page.locator("#confirm")).to_contain_text("fan is <b>loud</b>")
    page.locator("#confirm-yes").click()
    expect(row).to_contain_text("free")
    expect(row.get_by_role("button", name="Disable cpu:3")).to_be_visible()


def test_nodes_that_jobs_on_slurm_do_not_get_are_named_with_the_reason(page: Page) -> None:
    """There is no Slurm here: what the server would say of its nodes is added to its answer."""
    excluded = {"n3": "it cannot write <b>/home</b>: Read-only file system"}
    page.route(
        "**/api/v1/devices*", lambda route: route.fulfill(json=route.fetch().json() | {"excluded_nodes": excluded})
    )
    page.goto("/machine")
    expect(page.locator("#nodes")).to_contain_text("Nodes that jobs on Slurm do not get now")
    expect(page.locator("#excluded-nodes")).to_contain_text("it cannot write <b>/home</b>: Read-only file system")


def _with_gpu(route: Route) -> None:
    answer: dict[str, Any] = route.fetch().json()
    memory = {"memory_used_bytes": 70_000_000_000, "memory_total_bytes": 140_000_000_000}
    now = {"utilization_percent": 87.4, "temperature_celsius": 61.0, "power_watts": 512.0, "held_by": None}
    answer["devices"].insert(0, {"name": "cuda:0", "kind": "cuda", "model": "NVIDIA H200", **memory, **now})
    for past in answer["history"]:
        past["devices"] = [{"name": "cuda:0", "utilization_percent": 50.0, "memory_used_bytes": 1}]
    route.fulfill(json=answer)
