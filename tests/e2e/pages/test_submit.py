"""The form that submits a job."""

import io
import json
import shlex
import tarfile
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from e2e.played_job import Play
from e2e.serve_process import ServeProcess
from e2e.watcher import Watcher, found_by_axe
from rekindle_service.client import Client


@pytest.fixture
def form(page: Page) -> Page:
    page.goto("/submit")
    expect(page.locator("main")).to_have_attribute("aria-busy", "false")
    expect(page.get_by_role("button", name="Submit the job")).to_be_in_viewport()
    expect(page.get_by_label("Priority")).to_be_hidden()
    page.get_by_text("Advanced:").click()
    return page


@pytest.fixture
def before(play: Play) -> str:
    """The id of a job that never succeeds: what waits for it never starts."""
    return play("before", ranks=1).id


def test_errors_are_shown_at_their_fields_until_these_change(form: Page, watcher: Watcher, tmp_path: Path) -> None:
    watcher.expect("422")
    (tmp_path / "train.py").write_text("")
    form.get_by_role("button", name="Submit the job").click()
    expect(form.locator("[data-field=script]")).to_contain_text("Name the script to run")
    form.get_by_label("Script", exact=True).fill("tarin.py")
    form.get_by_label("Code from").select_option("path")
    form.get_by_label("Directory", exact=True).fill(str(tmp_path))
    form.get_by_label("Ranks", exact=True).fill("many")
    form.get_by_label("Priority").fill("5000")
    form.get_by_label("Also keep the best by").fill("-")
    form.get_by_role("button", name="Submit the job").click()
    ranks = form.get_by_label("Ranks", exact=True)
    expect(ranks).to_have_attribute("aria-invalid", "true")
    error = form.locator(f"#{ranks.get_attribute('aria-errormessage')}")
    expect(error).to_contain_text("Must be a whole number from 1 to 4096")
    assert found_by_axe(form) == []
    expect(form.locator("[data-field=priority]")).to_contain_text("less than or equal to 1000")
    expect(form.locator("[data-field='snapshot.monitor']")).to_contain_text("as in -loss")
    expect(form.locator("#form-error")).to_contain_text("see the fields below")
    for label, text in (("Ranks", "1"), ("Priority", "0"), ("Also keep the best by", "")):
        form.get_by_label(label, exact=True).fill(text)
    expect(form.locator("[aria-invalid]")).to_have_count(0)
    form.get_by_label("Arguments").fill("--name 'never closed")
    expect(form.locator("[data-field=args]")).to_contain_text("The single quote at character 8 is never closed")
    form.get_by_label("Arguments").fill("")
    form.get_by_role("button", name="Submit the job").click()
    expect(form.locator("[data-field=script]")).to_contain_text("there: train.py")
    expect(form.get_by_label("Script", exact=True)).to_be_focused()


def test_an_error_in_a_folded_part_unfolds_it(form: Page, watcher: Watcher) -> None:
    watcher.expect("422")
    form.get_by_label("Run", exact=True).select_option("recipe")
    form.evaluate("document.getElementById('time-limit').value = '-3'")
    form.get_by_role("button", name="Submit the job").click()
    expect(form.get_by_label("Time limit")).to_be_visible()
    expect(form.locator("[data-field=time_limit]")).to_contain_text("greater than 0")


def test_what_is_shown_as_command_and_curl_is_what_is_submitted(form: Page, client: Client, before: str) -> None:
    form.get_by_label("Run", exact=True).select_option("recipe")
    form.get_by_label("Recipe", exact=True).select_option("ddp")
    form.get_by_text("Options of the recipe").click()
    form.get_by_label("--lr", exact=True).fill("0.05")
    form.get_by_label("--model").select_option("lenet")
    form.get_by_label("--no-shuffle").check()
    form.get_by_label("Arguments").fill("--seed '7'")
    form.get_by_label("Job name").fill('it\'s <b>one</b> "name"')
    form.get_by_label("Ranks", exact=True).fill("1:2")
    form.get_by_label("Device", exact=True).fill("cpu")
    form.get_by_label("After", exact=True).fill(before)
    form.get_by_label("Every … seconds").fill("2.5")
    form.get_by_text("More: environment").click()
    form.get_by_label("Environment").fill("MODE=a=b c\nEMPTY=")
    words = typed(form, "#preview-command")
    assert words == [
        "rekindle", "submit", "--env", "MODE=a=b c", "--env", "EMPTY=", "--name", "it's <b>one</b> \"name\"",
        "--after", before, "--ranks", "1:2", "--device", "cpu", "--every-seconds", "2.5",
        "--recipe", "ddp", "--", "--lr", "0.05", "--model", "lenet", "--no-shuffle", "--seed", "7",
    ]  # fmt: skip
    curl = typed(form, "#preview-curl")
    body = json.loads(curl[curl.index("-d") + 1])
    form.context.grant_permissions(["clipboard-read", "clipboard-write"])
    form.get_by_role("button", name="Copy the curl command").click()
    expect(form.locator("#copied")).to_have_text("Copied")
    assert form.evaluate("navigator.clipboard.readText()") == form.locator("#preview-curl").text_content()
    form.get_by_role("button", name="Submit the job").click()
    form.wait_for_url("**/jobs/*")
    job = client.job(form.url.rpartition("/")[2])
    assert job["name"] == body["name"] == 'it\'s <b>one</b> "name"'
    assert job["args"] == body["args"] == words[words.index("--") + 1 :]
    assert job["ranks"] == body["ranks"] == {"min": 1, "max": 2}
    assert body["env"] == {"MODE": "a=b c", "EMPTY": ""}


def test_several_values_of_a_parameter_make_an_experiment_which_can_be_varied_again(
    form: Page, watcher: Watcher, client: Client, before: str, tmp_path: Path
) -> None:
    watcher.expect("422")
    (tmp_path / "train.py").write_text("")
    form.get_by_label("Script", exact=True).fill(str(tmp_path / "train.py"))
    form.get_by_label("Arguments").fill("--epochs 3")
    form.get_by_label("Job name").fill("rates")
    form.get_by_label("Device", exact=True).fill("cpu")
    form.get_by_label("After", exact=True).fill(before)
    form.get_by_text("Experiment: several values").click()
    form.get_by_label("Parameters").fill("lr = 1")
    form.get_by_label("Measures").fill("test_accuracy, min loss")
    form.get_by_role("button", name="Submit the experiment").click()
    expect(form.locator("[data-field=matrix]")).to_contain_text("did you mean '--lr'")
    parameters = '--lr = 0.1, 0.01\nnote= = "a, b", <img>\n--fast = true'
    form.get_by_label("Parameters").fill(parameters)
    expect(form.locator("#matrix-jobs")).to_have_text("This makes 4 jobs.")
    assert json.loads(typed(form, "#preview-curl")[-1])["base"]["args"] == ["--epochs", "3"]
    form.get_by_role("button", name="Submit the experiment").click()
    form.wait_for_url("**/experiments/*")
    experiment = client.experiment(form.url.rpartition("/")[2])
    assert experiment["name"] == "rates"
    assert experiment["definition"]["matrix"] == [{"--lr": [0.1, 0.01], "note=": ["a, b", "<img>"], "--fast": [True]}]
    assert experiment["goals"] == ["max", "min"]
    form.get_by_role("link", name="Run again with changes").click()
    expect(form.get_by_label("Parameters")).to_have_value(parameters)
    expect(form.get_by_label("Measures")).to_have_value("test_accuracy, min loss")
    expect(form.get_by_label("Arguments")).to_have_value("--epochs 3")
    expect(form.locator("#clone-note")).to_have_text("Filled in from experiment rates.")


def test_restarts_and_what_is_copied_can_be_chosen(form: Page, watcher: Watcher) -> None:
    watcher.expect("422")
    form.get_by_label("Script", exact=True).fill("/project/train.py")
    form.get_by_text("More: environment").click()
    form.get_by_label("Append on restart").fill("--resume '{latest:*.pt}' {newest}")
    form.get_by_label("Exclude", exact=True).fill("data/\n*.bin\n")
    form.get_by_label("Exclude what").check()
    form.get_by_label("Keep links").check()
    form.get_by_label("Continue job").fill("nojob00000")
    assert typed(form, "#preview-command") == [
        "rekindle", "submit", "--on-restart", "--resume '{latest:*.pt}' '{newest}'", "--exclude", "data/",
        "--exclude", "*.bin", "--gitignore", "--keep-links", "--continue", "nojob00000", "/project/train.py",
    ]  # fmt: skip
    curl = typed(form, "#preview-curl")
    assert json.loads(curl[curl.index("-d") + 1])["on_restart"] == ["--resume", "{latest:*.pt}", "{newest}"]
    form.get_by_role("button", name="Submit the job").click()
    expect(form.locator("[data-field=on_restart]")).to_contain_text("{newest} is no placeholder; there are {snapshots}")
    expect(form.locator("[data-field=continue_from]")).to_contain_text("Must name a job that exists")


def test_an_archive_is_uploaded_and_run_and_a_broken_one_is_refused(
    form: Page, watcher: Watcher, client: Client, before: str
) -> None:
    watcher.expect("422")
    form.get_by_label("Script", exact=True).fill("train.py")
    form.get_by_label("Code from").select_option("bundle")
    archive = form.get_by_label("Archive")
    archive.set_input_files({"name": "broken.zip", "mimeType": "application/zip", "buffer": b"no archive"})
    expect(form.locator("[data-field='code.bundle']")).to_contain_text("archive")
    archive.set_input_files({"name": "code.tar.gz", "mimeType": "application/gzip", "buffer": packed()})
    expect(form.locator("#upload-status")).to_contain_text("code.tar.gz is on the server")
    form.get_by_label("After", exact=True).fill(before)
    form.get_by_role("button", name="Submit the job").click()
    form.wait_for_url("**/jobs/*")
    assert client.job(form.url.rpartition("/")[2])["target"] == {"kind": "script", "value": "train.py"}


def test_the_archive_that_was_chosen_last_is_submitted_whichever_arrives_first(form: Page) -> None:
    held: list[Route] = []
    form.route("**/api/v1/bundles", lambda route: held.append(route), times=1)  # playwright marks the function
    form.get_by_label("Code from").select_option("bundle")
    archive, bundle = form.get_by_label("Archive"), form.locator("#bundle")
    submit = form.get_by_role("button", name="Submit the job")
    bundle.fill("sha256:older")
    archive.set_input_files({"name": "large.tar.gz", "mimeType": "application/gzip", "buffer": packed(b"print(1)")})
    expect(submit).to_be_disabled()
    expect(bundle).to_have_value("")
    expect(archive).to_have_value("")  # so that the same file, edited since, can be chosen again
    archive.set_input_files({"name": "small.tar.gz", "mimeType": "application/gzip", "buffer": packed(b"print(2)")})
    expect(form.locator("#upload-status")).to_contain_text("small.tar.gz is on the server")
    expect(submit).to_be_enabled()
    chosen = bundle.input_value()
    [route] = held
    answer = route.fetch()
    assert answer.json()["id"] != chosen
    with form.expect_response("**/api/v1/bundles"):
        route.fulfill(response=answer)
    form.evaluate("fetch('/healthz').then((answer) => answer.text())")
    assert bundle.input_value() == chosen
    expect(form.locator("#upload-status")).to_contain_text("small.tar.gz is on the server")


def test_an_error_is_marked_while_the_user_types_elsewhere(form: Page) -> None:
    form.get_by_label("Arguments").fill("'never closed")
    name = form.get_by_label("Job name")
    name.click()
    form.keyboard.type("baseline")
    expect(name).to_be_focused()
    expect(name).to_have_value("baseline")
    expect(form.get_by_label("Arguments")).to_have_attribute("aria-invalid", "true")
    form.get_by_role("button", name="Submit the job").click()
    expect(form.get_by_label("Arguments")).to_be_focused()


def test_nothing_is_lost_or_doubled_while_the_server_is_unreachable(
    form: Page, server: ServeProcess, watcher: Watcher, client: Client, before: str
) -> None:
    """The answer to the first request is lost, too: its repeat finds the job that it made."""
    watcher.expect("ERR_")
    form.get_by_label("Run", exact=True).select_option("recipe")
    form.get_by_label("After", exact=True).fill(before)
    form.get_by_label("Job name").fill("once")
    form.route("**/api/v1/jobs", lambda route: (route.fetch(), route.abort())[1], times=1)
    form.get_by_role("button", name="Submit the job").click()
    expect(form.locator("#form-error")).to_contain_text("What you filled in is still here")
    server.stop()
    form.get_by_role("button", name="Submit the job").click()
    expect(form.locator("#form-error")).to_contain_text("Server unreachable")
    server.start()
    form.get_by_role("button", name="Submit the job").click()
    form.wait_for_url("**/jobs/*")
    assert len(list(client.jobs(name="once"))) == 1


def typed(form: Page, preview: str) -> list[str]:
    """The words of a command; a backslash at the end of a line continues it, which shlex does not know."""
    return shlex.split((form.locator(preview).text_content() or "").replace("\\\n", ""))


def packed(script: bytes = b"print('from an archive')\n") -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        member = tarfile.TarInfo("train.py")
        member.size = len(script)
        archive.addfile(member, io.BytesIO(script))
    return data.getvalue()
