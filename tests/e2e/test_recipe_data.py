"""The data sets that do not come with rekindle, in their own formats: read, downloaded, and refused in words."""

import functools
import http.server
import threading
from collections import Counter
from pathlib import Path

import pytest

from rekindle.recipes.data_sets import DEBIAN
from small_data import pack_fashion_mnist, write_cifar10, write_fashion_mnist

SHORT = ("--epochs", "2", "--batch-size", "20")  # five steps an epoch, a snapshot at every second one
KILLED_AT = 8
RANKS = {"single": 1, "dp": 1, "ddp": 2, "fsdp": 2, "scratch": 2, "tensor": 2, "pipeline": 2}
SETS = {"fashion-mnist": functools.partial(write_fashion_mnist, train=100, test=31)}
SETS["cifar10"] = functools.partial(write_cifar10, per_batch=20)


@pytest.fixture
def survives(recipes, tmp_path):
    """Trains once undisturbed, and once with a kill."""

    def run(name, kind, *args, made_up=True):
        if made_up:
            SETS[kind](tmp_path / "data")
        directories = [tmp_path / "undisturbed", tmp_path / "killed"]
        for directory in directories:
            directory.mkdir()
            if made_up:
                (directory / "data").symlink_to(tmp_path / "data")

        def launch(directory, kill=None):
            odd = ("small-cifar10",) if kind == "cifar10" else ("as-it-is",)
            options = ("--data", kind, *SHORT, *args)
            return recipes.run_module(directory, "odd_recipe", RANKS[name], *odd, name, *options, kill=kill)

        undisturbed = launch(directories[0])
        assert set(undisturbed.codes) == {0}, "\n".join(undisturbed.outputs)
        assert 0 not in launch(directories[1], kill=(RANKS[name] - 1, KILLED_AT)).codes
        resumed = launch(directories[1])
        assert set(resumed.codes) == {0}, "\n".join(resumed.outputs)
        assert resumed.weights == undisturbed.weights

    return run


class Mirror(http.server.ThreadingHTTPServer):
    """Serves a directory, and remembers the requests."""

    def __init__(self, directory: Path) -> None:
        self.asked: list[str] = []

        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_request(handler, *_: object) -> None:  # noqa: N805  # self is the mirror's
                self.asked.append(handler.path)

        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=str(directory)))


@pytest.fixture
def mirror(tmp_path):
    """A mirror of a small Fashion-MNIST."""
    write_fashion_mnist(tmp_path / "origin", train=60, test=31)
    pack_fashion_mnist(tmp_path / "origin", tmp_path / "served")
    with Mirror(tmp_path / "served") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (tmp_path / "mirror").write_text(f"http://127.0.0.1:{server.server_port}/")
        yield server
        server.shutdown()


@pytest.mark.soak
def test_cifar10_with_its_random_crops_resumes_exactly(survives):
    survives("ddp", "cifar10", "--model", "small-resnet", "--workers", "1")


@pytest.mark.soak
@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("name", RANKS)
def test_every_recipe_resumes_exactly_on_every_data_set(survives, name, kind):
    survives(name, kind)


@pytest.mark.soak
@pytest.mark.skipif(not DEBIAN.is_dir(), reason="dataset-fashion-mnist is not installed")
@pytest.mark.parametrize("name", RANKS)
def test_every_recipe_resumes_exactly_on_the_real_fashion_mnist(survives, name):
    model = {"scratch": (), "tensor": (), "pipeline": ()}.get(name, ("--model", "lenet"))
    survives(name, "fashion-mnist", "--train-images", "100", *model, made_up=False)


def test_rank_0_downloads_while_the_others_wait(recipes, mirror, tmp_path):
    args = ("--data", "fashion-mnist", "--download", "--model", "lenet", "--epochs", "1", "--batch-size", "30")
    trained = recipes.run_module(tmp_path, "odd_recipe", 3, "own-mirror", "ddp", *args)
    assert trained.codes == [0, 0, 0], "\n".join(trained.outputs)
    of_one_rank = 2  # torchvision asks whether it is sent elsewhere, and then for the file
    assert Counter(mirror.asked) == {f"/{path.name}": of_one_rank for path in (tmp_path / "served").iterdir()}


def test_a_download_without_a_network_ends_all_ranks_with_the_same_words(recipes, mirror, tmp_path):
    (tmp_path / "mirror").write_text("http://127.0.0.1:9/")
    args = ("--data", "fashion-mnist", "--download")
    refused = recipes.run_module(tmp_path, "odd_recipe", 2, "own-mirror", "ddp", *args)
    assert refused.codes == [1, 1]
    for output in refused.outputs:
        assert f"Fashion-MNIST could not be downloaded to {tmp_path / 'data'} (" in output
        assert "Connection refused" in output
        assert "copy the files to" in output


@pytest.mark.parametrize("kind", SETS)
def test_damaged_data_end_all_ranks_with_the_name_of_the_directory(recipes, tmp_path, kind):
    SETS[kind](tmp_path / "data")
    damaged = next(path for path in sorted((tmp_path / "data").rglob("*")) if path.is_file())
    damaged.write_bytes(damaged.read_bytes()[:-1])
    refused = recipes.run(tmp_path, "ddp", 2, "--data", kind)
    assert refused.codes == [1, 1]
    assert all(f" in {damaged.parent} is damaged or incomplete (" in output for output in refused.outputs)
