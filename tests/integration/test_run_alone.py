"""A run in a world of one, without torchrun: the loop around the step."""

import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset

from rekindle import Drained, NonFiniteError, Run, SnapshotPolicy, Snapshots
from rekindle.training.export import export
from rekindle.training.reporter import reporter
from rekindle.training.snapshots.async_saver import AsyncSaver

LENGTH, BATCH = 20, 8  # batches of 8, 6 and 6


@pytest.fixture(autouse=True)
def at_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def data():
    return TensorDataset(torch.arange(LENGTH, dtype=torch.float32).reshape(-1, 1))


def start(model=None, **options):
    torch.manual_seed(0)
    model = model if model is not None else nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return Run(
        model=model,
        optimizer=optimizer,
        device="cpu",
        **{"snapshot_policy": SnapshotPolicy(every_steps=1000), **options},
    ), (
        model,
        optimizer,
    )


def step(run, optimizer, x):
    optimizer.zero_grad()
    loss = run.model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def train(epochs, *, stop_after=None, interrupt=None, **options):
    """The loss of each step."""
    run, (_, optimizer) = start(**options)
    losses = {}
    with run:
        for _ in run.epochs(epochs):
            for (x,) in run.batches(data(), global_batch=BATCH):
                losses[run.step + 1] = step(run, optimizer, x)
                if run.step + 1 == interrupt:
                    signal.raise_signal(signal.SIGTERM)
                if run.step + 1 == stop_after:
                    return losses
    return losses


def train_with(body, *, dataset=None):
    """One epoch that calls ``body`` behind each step."""
    run, (_, optimizer) = start()
    with run:
        for _ in run.epochs(1):
            for (x,) in run.batches(dataset if dataset is not None else data(), global_batch=BATCH):
                step(run, optimizer, x)
                body(run)


@pytest.fixture
def undisturbed(tmp_path, monkeypatch):
    """The losses of a training of four epochs in a directory of its own."""
    (tmp_path / "undisturbed").mkdir()
    monkeypatch.chdir(tmp_path / "undisturbed")
    losses = train(4)
    monkeypatch.chdir(tmp_path)
    return losses


def test_it_needs_no_torchrun_and_leaves_no_group_behind():
    assert list(train(2)) == [1, 2, 3, 4, 5, 6]
    assert not torch.distributed.is_initialized()
    assert train(2) == {}


@pytest.mark.parametrize(("interrupt", "last"), [(1, 2), (2, 3), (3, 3)])  # an epoch has three steps
def test_a_drain_saves_the_step_and_the_next_run_continues_after_it(undisturbed, interrupt, last):
    with pytest.raises(Drained) as drained:
        train(4, interrupt=interrupt)
    assert drained.value.step == last
    assert train(4) == {number: loss for number, loss in undisturbed.items() if number > last}


def test_a_drain_at_the_last_step_of_an_epoch_saves_it_and_lets_the_script_end_the_epoch(tmp_path):
    saved_before, ended = [], []

    def train_and_observe(interrupt):
        run, (_, optimizer) = start()
        with run:
            for epoch in run.epochs(2):
                for (x,) in run.batches(data(), global_batch=BATCH):
                    loss = step(run, optimizer, x)
                    if run.step + 1 == interrupt:
                        signal.raise_signal(signal.SIGTERM)
                saved_before.append(
                    sorted(int(each.parent.name) for each in tmp_path.glob("snapshots/*/manifest.json"))
                )
                ended.append((epoch, loss))  # a resumed script would not have this

    with pytest.raises(Drained):
        train_and_observe(interrupt=2)
    train_and_observe(interrupt=None)
    assert saved_before[0] == [3]
    assert [epoch for epoch, _ in ended] == [0, 1]


def test_more_epochs_may_be_requested_when_the_first_are_done(undisturbed):
    assert train(2) | train(4) == undisturbed


def test_leaving_the_script_in_mid_epoch_saves_what_was_trained():
    assert list(train(2, stop_after=2)) == [1, 2]
    assert list(train(2)) == [3, 4, 5, 6]


def test_leaving_the_loop_over_the_batches_ends_the_epoch():
    run, (_, optimizer) = start()
    with run:
        for epoch in run.epochs(2):
            for (x,) in run.batches(data(), global_batch=BATCH):
                step(run, optimizer, x)
                break
            assert run.step == epoch
    assert run.step == 2


def test_an_exception_leaves_the_signal_and_the_group_as_they_were_and_saves_nothing(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ZeroDivisionError):
        train_with(lambda run: 1 / (run.step - 1))
    assert signal.getsignal(signal.SIGTERM) is before
    assert not torch.distributed.is_initialized()
    assert not list(tmp_path.glob("snapshots/0*"))


@pytest.fixture
def prompt(monkeypatch):
    """The writer is done before the next step, so that no snapshot is skipped."""
    async_save = AsyncSaver.async_save

    def save_and_wait(saver, **options):
        async_save(saver, **options)
        while saver.snapshots.in_progress:
            time.sleep(0.001)

    monkeypatch.setattr(AsyncSaver, "async_save", save_and_wait)


def train_into_nan(on_nan, *, log_the_loss, steps_of_nan=(1,)):
    """An epoch of three steps with a snapshot behind each; the weights go bad in ``steps_of_nan``, counted from 0.

    Returns the steps that were begun.
    """
    run, (model, optimizer) = start(snapshot_policy=SnapshotPolicy(every_steps=1), on_nan=on_nan)
    begun = []
    with run:
        for _ in run.epochs(1):
            for count, (x,) in enumerate(run.batches(data(), global_batch=BATCH)):
                begun.append(run.step)
                loss = step(run, optimizer, x)
                if count in steps_of_nan:
                    with torch.no_grad():
                        model[2].bias.fill_(float("nan"))
                    loss = float("nan")
                if log_the_loss:
                    run.log(loss=loss, other=float("inf"))
    return begun


@pytest.mark.usefixtures("prompt")
def test_weights_that_are_not_finite_are_never_saved_even_if_training_continues(tmp_path, caplog):
    assert train_into_nan("ignore", log_the_loss=False) == [0, 1, 2]
    assert [entry.name for entry in (tmp_path / "snapshots").iterdir()] == ["000000000001"]
    assert "snapshot 2 not saved: parameter 0.weight is not finite" not in caplog.text
    assert "snapshot 2 not saved: parameter 2.bias is not finite" in caplog.text


@pytest.mark.usefixtures("prompt")
@pytest.mark.parametrize(
    ("log_the_loss", "finding"), [(True, "loss is nan at step 2"), (False, "2.bias is not finite after step 2")]
)
def test_a_training_that_is_not_finite_stops_and_keeps_the_snapshot_of_finite_weights(tmp_path, log_the_loss, finding):
    with pytest.raises(NonFiniteError, match=finding):
        train_into_nan("stop", log_the_loss=log_the_loss)
    assert [entry.name for entry in (tmp_path / "snapshots").iterdir()] == ["000000000001"]
    assert not torch.distributed.is_initialized()


@pytest.mark.usefixtures("prompt")
@pytest.mark.parametrize("log_the_loss", [True, False])
def test_a_training_may_roll_back_and_skip_the_batch_after_which_it_was_not_finite(tmp_path, log_the_loss, caplog):
    begun = train_into_nan("rollback", log_the_loss=log_the_loss)
    assert begun == ([0, 1, 1] if log_the_loss else [0, 1, 2])
    assert "rolled back to the snapshot of step 1, without the data of the last" in caplog.text
    latest = Snapshots().latest()
    assert latest.step == (2 if log_the_loss else 1)
    assert torch.isfinite(latest.shared_state["model"]["2.bias"]).all()


def test_a_training_without_a_snapshot_to_roll_back_to_stops(tmp_path):
    with pytest.raises(NonFiniteError, match="no snapshot to roll back to"):
        train_into_nan("rollback", log_the_loss=True, steps_of_nan=(0,))


def test_an_unknown_value_of_on_nan_is_refused():
    with pytest.raises(ValueError, match="on_nan must be one of stop, rollback, ignore, not 'hope'"):
        start(on_nan="hope")


def test_state_that_the_snapshot_lacks_is_named():
    train(1)
    run, _ = start(scheduler=torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.zeros(1)]), 1))
    with pytest.raises(KeyError, match="step 3 has no 'scheduler'"), run:
        pass
    assert not torch.distributed.is_initialized()


def test_state_that_run_does_not_have_any_more_is_named():
    train(1, average=nn.Linear(1, 1))
    run, _ = start()
    with pytest.raises(KeyError, match=r"step 3 has 'average' too, and Run only .*: give Run the parts it was"), run:
        pass


def test_a_model_that_the_snapshot_does_not_fit_is_refused_with_what_does_not():
    train(1)
    for layers, complaint in (
        ((nn.Linear(1, 5), nn.BatchNorm1d(5), nn.Linear(5, 1)), "0.weight: copying a param with shape"),
        ((nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Linear(4, 1), nn.Linear(1, 1)), "Missing key.*3.weight"),
        ((nn.Linear(1, 4), nn.BatchNorm1d(4)), "Unexpected key.*2.weight"),
    ):
        run, _ = start(nn.Sequential(*layers))
        with pytest.raises(ValueError, match=rf"(?s)step 3 does not fit 'model': .*{complaint}.*; give Run the"), run:
            pass


def test_an_object_that_cannot_be_saved_is_refused_before_training():
    run, _ = start(average=object())
    with pytest.raises(TypeError, match=r"average must have state_dict and load_state_dict .* has no state_dict"), run:
        pass


def test_a_second_loop_in_one_epoch_is_refused():
    with pytest.raises(RuntimeError, match="once in each epoch"):
        train_with(lambda run: next(run.batches(data(), global_batch=BATCH)))


def test_a_stream_without_a_length_is_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(())

    with pytest.raises(TypeError, match="Stream has no length"):
        train_with(lambda run: None, dataset=Stream())


def test_the_model_is_there_only_within_the_run():
    run, _ = start()
    with run:
        assert run.model.module is run.module
    with pytest.raises(RuntimeError, match=r"run\.model exists only within"):
        _ = run.model


def test_evaluation_sees_every_sample_once_and_computes_no_gradients():
    run, _ = start()
    with run, run.evaluation() as model:
        seen = torch.cat([x for (x,) in run.eval_batches(data(), batch_size=7)])
        assert not model(seen).requires_grad
    assert seen.flatten().tolist() == list(range(LENGTH))


@pytest.mark.parametrize("fails", [False, True])
def test_an_evaluation_leaves_everything_as_it_was_however_it_ends(fails, monkeypatch):
    run, (model, _) = start()
    model[1].eval()  # a frozen layer
    phases = []
    with run, monkeypatch.context() as patch:
        patch.setattr(reporter(), "update_status", lambda phase: phases.append(phase))
        with suppress(ZeroDivisionError), run.evaluation() as evaluated:
            assert not any(layer.training for layer in evaluated.modules())
            if fails:
                raise ZeroDivisionError
    assert model.training
    assert [layer.training for layer in model] == [True, False, True]
    assert phases == ["evaluate", None]  # outside rekindle there is none


def model_after(**options):
    run, (model, _) = start(**options)
    with run:
        return {name: item.clone() for name, item in model.state_dict().items()}


def assert_same(found, expected):
    assert all(torch.equal(item, found[name]) for name, item in expected.items())


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("other.pt", torch.save),
        ("wrapped.pt", lambda state, name: torch.save({"model": state, "epoch": 7}, name)),
        ("other.safetensors", save_file),
    ],
)
def test_a_training_may_start_from_a_file_of_another_program(name, write):
    other = nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).state_dict()
    write(other, name)
    assert_same(model_after(start_from=name), other)


def test_a_snapshot_takes_precedence_over_the_file_to_start_from():
    train(1)
    trained = model_after()
    torch.save({name: torch.zeros_like(item) for name, item in trained.items()}, "zeros.pt")
    assert_same(model_after(start_from="zeros.pt"), trained)


def test_a_training_may_start_from_exported_weights():
    train(1)
    trained = model_after()
    for name in ("weights.safetensors", "weights.pt"):
        export(Path("snapshots"), Path(name), step=None, job_id=None, force=False)
        assert_same(model_after(start_from=name, directory=f"started-from-{name}"), trained)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        *((name, content, "is no ") for name in ("odd.safetensors", "odd.pt") for content in (b"", b"\xff" * 100)),
        ("odd.pt", nn.Linear(1, 4).state_dict(), "does not fit 'model': .*; give a file of this very"),
        ("odd.pt", [1], ".*holds a list"),
        ("odd.pt", SnapshotPolicy(), ".*more than tensors"),
    ],
)
def test_a_file_that_has_no_state_of_this_model_is_refused_by_name(name, content, complaint):
    if isinstance(content, bytes):
        Path(name).write_bytes(content)
    else:
        torch.save(content, name)
    with pytest.raises((ValueError, TypeError), match=f"(?s)start_from: {name} {complaint}"):
        model_after(start_from=name)
