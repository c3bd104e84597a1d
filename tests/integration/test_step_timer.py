"""Steps are timed in whatever a script does with torch, and the script notices nothing of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from rekindle.contract.files import read_json
from rekindle.contract.run_dir.step_records import StepPhase, StepSamples

HEAD = """
import io, os, sys, threading, time, warnings
from pathlib import Path
from rekindle.rank import step_timer
step_timer.INTERVAL = step_timer._WRITE_INTERVAL = 0.0  # every step is sampled and written
timer = step_timer.StepTimer(Path(sys.argv[1]), 1)
timer.install()
warnings.simplefilter("error")
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
torch.set_num_threads(1)

class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        time.sleep(0.02)
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.03)
        return grad

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
    def forward(self, x):
        return Slow.apply(self.linear(x))

class Samples(Dataset):
    def __len__(self): return 16
    def __getitem__(self, index):
        time.sleep(0.005)
        return {"x": torch.ones(4), "y": [torch.ones(2), "text"]}

class Sgd(torch.optim.SGD):
    def step(self, closure=None):
        time.sleep(0.01)
        return super().step(closure)

def train(model, optimizer, loader, after=lambda: None):
    for batch in loader:
        optimizer.zero_grad()
        model(batch["x"]).sum().backward()
        optimizer.step()
        after()

model = Layer()
loader = DataLoader(Samples(), batch_size=2)
optimizer = Sgd(model.parameters(), lr=0.1)
"""


def measured(tmp_path: Path, script: str) -> StepSamples | None:
    path = tmp_path / "steps.json"
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script, str(path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    value = read_json(path)
    return None if value is None else StepSamples.from_json(value)


def means(found: StepSamples | None) -> dict[StepPhase, float]:
    assert found is not None
    assert found.samples
    return {
        phase: sum(each.seconds.get(phase, 0.0) for each in found.samples) / len(found.samples) for phase in StepPhase
    }


def least(found: StepSamples | None) -> dict[StepPhase, float]:
    """Seconds in the steps that a busy machine has disturbed least."""
    assert found is not None
    return {phase: min(each.seconds.get(phase, 0.0) for each in found.samples) for phase in StepPhase}


def test_each_phase_has_its_time_and_saving_is_counted(tmp_path: Path) -> None:
    script = """
class SlowFile(io.BytesIO):
    def write(self, data):
        time.sleep(0.01)
        return super().write(data)
saves = iter(range(100))
after = lambda: next(saves) % 4 == 3 and torch.save(model.state_dict(), SlowFile())
train(model, optimizer, loader, after); train(model, optimizer, loader, after)
with torch.no_grad():  # an evaluation is no step
    for batch in loader: model(batch["x"])
train(model, optimizer, loader, after)
"""
    found = measured(tmp_path, script)
    mean = means(found)
    lengths = {StepPhase.DATA: 0.01, StepPhase.FORWARD: 0.02, StepPhase.BACKWARD: 0.03, StepPhase.OPTIMIZER: 0.01}
    for phase, length in lengths.items():
        assert length <= mean[phase], mean
        assert least(found)[phase] < length + 0.01, found
    assert least(found)[StepPhase.COMMUNICATION] < 0.005, found
    assert mean[StepPhase.COPY] == 0
    assert (found.workers, found.samples[0].elements, found.saves) == (0, 12, 5)
    assert [each.step for each in found.samples] == list(range(4, 24))
    assert found.saving > 0.05
    assert mean[StepPhase.OTHER] > 8 * 0.03 / 20 - 0.002, "the evaluation"


def test_several_optimizers_accumulation_functions_streams_and_workers_are_timed(tmp_path: Path) -> None:
    script = """
class Stream(IterableDataset):
    def __iter__(self):
        for index in range(20):
            yield torch.ones(4)
weight = nn.Parameter(torch.ones(4, 4))
second = torch.optim.AdamW([weight])
for x in DataLoader(Stream(), batch_size=2, num_workers=1):
    Slow.apply(x @ weight).sum().backward()  # no module
    for batch in range(2):
        model(x).sum().backward()
    optimizer.step(); second.step()
"""
    found = measured(tmp_path, script)
    mean = means(found)
    assert found.workers == 1
    assert mean[StepPhase.BACKWARD] >= 0.09
    assert mean[StepPhase.FORWARD] >= 0.05
    assert least(found)[StepPhase.FORWARD] < least(found)[StepPhase.BACKWARD]
    assert len(found.samples) == 10 - 3 - 1, "the last is not written any more"


@pytest.mark.long
def test_without_an_optimizer_or_in_other_processes_nothing_is_measured_and_nothing_fails(tmp_path: Path) -> None:
    script = """
for batch in loader:
    model(batch["x"]).sum().backward()
    with torch.no_grad():
        for each in model.parameters(): each -= each.grad
pid = os.fork()
if pid == 0:
    train(model, optimizer, loader)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    assert measured(tmp_path, script) is None


def test_hooks_and_replaced_functions_of_a_script_work_as_ever(tmp_path: Path) -> None:
    script = """
from torch.nn.modules import module
from torch.utils.data import dataloader
calls = []
def count(owner, name):
    original = getattr(owner, name)
    def call(*args, **options):
        calls.append(name)
        return original(*args, **options)
    setattr(owner, name, call)
    return original
loads = count(dataloader._BaseDataLoaderIter, "__next__")
count(torch.Tensor, "backward"); count(torch, "save"); count(torch.optim.SGD, "step")
global_handle = module.register_module_forward_pre_hook(lambda *_: calls.append("global"))
own_handle = model.register_forward_pre_hook(lambda *_: calls.append("own"))
optimizer.register_step_post_hook(lambda *_: calls.append("optimizer"))
train(model, optimizer, loader, lambda: torch.save({}, io.BytesIO()))
counts = {name: calls.count(name) for name in set(calls)}
assert counts == {"__next__": 9, "backward": 8, "save": 8, "step": 8, "global": 16, "own": 8, "optimizer": 8}, counts
global_handle.remove()
dataloader._BaseDataLoaderIter.__next__ = loads
train(model, optimizer, loader)

class Wrong(Exception): pass
def fail(*_): raise Wrong
handle = model.linear.weight.register_hook(fail)
for _ in range(2):
    try: train(model, optimizer, loader)
    except Wrong: pass
    else: raise AssertionError
handle.remove()
train(model, optimizer, loader)
assert not module._global_forward_pre_hooks or timer._first_layer is not None
"""
    found = measured(tmp_path, script)
    assert found is not None
    assert found.samples[-1].step == 23


@pytest.mark.long
def test_threads_that_train_and_communicate_are_ignored(tmp_path: Path) -> None:
    script = """
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
done = threading.Event()
def work():
    other = nn.Linear(2, 2)
    its = torch.optim.SGD(other.parameters(), lr=0.1)
    while not done.is_set():
        for x in DataLoader(torch.ones(8, 2)):
            other(x).sum().backward(); its.step(); its.zero_grad(); dist.all_reduce(torch.ones(1))
train(model, optimizer, loader)
threads = [threading.Thread(target=work) for _ in range(2)]
for each in threads: each.start()
train(model, optimizer, loader, lambda: dist.all_reduce(torch.ones(1)))
ddp = nn.parallel.DistributedDataParallel(model)
train(ddp, optimizer, loader); train(ddp, optimizer, loader)
done.set()
for each in threads: each.join()
dist.destroy_process_group()
"""
    found = measured(tmp_path, script)
    assert found is not None
    assert [each.step for each in found.samples] == list(range(4, 32)), "of the main thread alone"
    assert all(each.seconds[StepPhase.BACKWARD] >= 0.03 for each in found.samples)


@pytest.mark.long
def test_torch_compile_sees_no_hook_and_compiles_nothing_again(tmp_path: Path) -> None:
    script = """
warnings.simplefilter("default")
import torch._dynamo
from torch._dynamo.utils import counters
fast = torch.compile(nn.Linear(4, 4), backend="eager", fullgraph=True)
stepping = torch.optim.SGD(fast.parameters(), lr=torch.tensor(0.1), foreach=False)
compiled_step = torch.compile(stepping.step, backend="eager", fullgraph=False)
whole = torch.compile(lambda x: fast(x).sum(), backend="eager")
with warnings.catch_warnings():
    warnings.filterwarnings("error", message=".*global hooks.*")
    for index in range(12):
        for x in DataLoader(torch.ones(2, 4), batch_size=2):
            whole(x).backward()
            (compiled_step if index % 2 else stepping.step)()
            if index == 5: frames = dict(counters["frames"])
assert dict(counters["frames"]) == frames, (frames, counters["frames"])
"""
    found = measured(tmp_path, script)
    assert found is not None
    assert found.samples


def test_events_of_a_gpu_are_read_when_it_has_passed_them_and_a_captured_step_is_dropped(tmp_path: Path) -> None:
    script = """
class Event:
    passed, capturing, made = 0, False, 0
    def __init__(self, enable_timing):
        assert enable_timing and not Event.capturing
        Event.made += 1
    def record(self):
        self.at, self.number = time.monotonic() + 5, Event.made
    def query(self):
        return self.number <= Event.passed
    def elapsed_time(self, other):
        assert other.query()
        return 1000 * (other.at - self.at)
torch.cuda.Event, torch.cuda.is_initialized = Event, lambda: True
torch.cuda.is_current_stream_capturing = lambda: Event.capturing
train(model, optimizer, loader)
assert Event.made > 0 and not timer._samples, "nothing waits for the device"
Event.passed = 1 << 60
train(model, optimizer, loader)
Event.capturing = True
train(model, optimizer, loader)
Event.capturing = False
train(model, optimizer, loader)
"""
    found = measured(tmp_path, script)
    mean = means(found)
    assert mean[StepPhase.BACKWARD] >= 0.03, mean
    assert least(found)[StepPhase.BACKWARD] < 0.05, found
    assert mean[StepPhase.COPY] > 0
    steps = [each.step for each in found.samples]
    assert steps[-1] == 31
    assert set(range(18, 25)).isdisjoint(steps), "captured"
