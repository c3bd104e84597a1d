"""The arithmetic of DeterministicElastic in a world of one, and what it refuses; tests/e2e has several ranks."""

import pytest
import torch
from torch import nn

from rekindle import DeterministicElastic, Run
from rekindle.training.process_group import World
from rekindle.training.sampler import shard_range
from rekindle.training.shard_gradients import TreeReduction, subtrees_in

ALONE = World(0, 0, 1, torch.device("cpu"), None, owned=False)
ROWS = torch.arange(40.0).reshape(20, 2) / 7


@pytest.fixture
def run_of(tmp_path):
    def make(model, shards=4, **more):
        return Run(model=model, device="cpu", directory=tmp_path, strategy=DeterministicElastic(shards), seed=1, **more)

    return make


def train_microbatches(run, use, data=ROWS, global_batch=20, **options):
    """Call ``use`` with each microbatch of one epoch."""
    with run:
        for _ in run.epochs(1):
            for batch in run.batches(data, global_batch=global_batch, **options):
                for part in run.microbatches(batch):
                    use(part)


@pytest.mark.parametrize("terms", range(1, 14))
def test_a_sum_is_the_same_however_its_terms_are_spread(terms):
    values = torch.randn(terms, 50, generator=torch.Generator().manual_seed(terms))
    totals = []
    for holders in range(1, terms + 1):
        whole = TreeReduction()
        for holder in range(holders):
            own, part = shard_range(terms, holder, holders), TreeReduction()
            for term in own:
                part.add(range(term, term + 1), values[term].clone())
            for subtree, value in zip(subtrees_in(own), part.subtrees(), strict=True):
                whole.add(subtree, value)
        totals.append(whole.total())
    assert all(torch.equal(total, totals[0]) for total in totals)
    torch.testing.assert_close(totals[0], values.sum(0))


def test_the_gradient_is_that_of_the_whole_batch_even_with_uneven_shards(run_of):
    model, sizes = nn.Linear(2, 1), []
    run = run_of(model, shards=3)

    def use(part):
        (run.model(part).square().mean() * run.batch_weight).backward()
        sizes.append(len(part))

    train_microbatches(run, use, shuffle=False)
    found = model.weight.grad.clone()
    model.zero_grad()
    model(ROWS).square().mean().backward()
    assert sizes == [6, 7, 7]
    torch.testing.assert_close(found, model.weight.grad)


def test_running_statistics_become_the_mean_over_the_shards_and_other_buffers_keep_every_bit(run_of):
    model = nn.BatchNorm1d(2, momentum=1.0)
    mask = torch.tensor([float("-inf"), 1 / 3, -1e38])
    model.register_buffer("mask", mask.clone())
    run = run_of(model)
    train_microbatches(run, lambda part: run.model(part).sum().backward(), shuffle=False)
    torch.testing.assert_close(model.running_mean, ROWS.mean(0))
    torch.testing.assert_close(model.running_var, torch.stack([part.var(0) for part in ROWS.chunk(4)]).mean(0))
    assert model.num_batches_tracked == 1
    assert torch.equal(model.mask, mask)


def test_a_parameter_that_some_shards_leave_out_gets_the_mean_of_the_others(run_of):
    model = nn.ModuleDict({"always": nn.Linear(2, 1), "seldom": nn.Linear(2, 1)})
    model.forward = lambda x, names: sum(model[name](x).sum() for name in names)
    run, names = run_of(model), iter([["always", "seldom"], ["always"], ["always"], ["always"]])
    train_microbatches(run, lambda part: run.model(part, next(names)).backward(), shuffle=False)
    assert (model["always"].bias.grad, model["seldom"].bias.grad) == (torch.tensor([5.0]), torch.tensor([5 / 4]))


def test_draws_outside_the_microbatches_are_not_those_within_and_continue_after_them(run_of):
    model, drawn = nn.Linear(2, 1), []
    with run_of(model) as run:
        for _ in run.epochs(1):
            drawn.append(torch.rand(1).item())
            for batch in run.batches(ROWS, global_batch=10):
                drawn.append(torch.rand(1).item())
                for part in run.microbatches(batch):
                    drawn.append(torch.rand(1).item())
                    run.model(part).sum().backward()
                drawn.append(torch.rand(1).item())
    assert len(set(drawn)) == 1 + 2 * (1 + 4 + 1)


def test_a_script_without_the_loop_over_microbatches_is_refused(run_of):
    run = run_of(nn.Linear(2, 1))
    run.microbatches = lambda batch: batch
    with pytest.raises(RuntimeError, match=r"`for microbatch in run.microbatches\(batch\): …`"):
        train_microbatches(run, lambda part: run.model(part))


def test_a_step_of_the_optimizer_within_a_microbatch_is_refused(run_of):
    model = nn.Linear(2, 1)
    run, optimizer = run_of(model), torch.optim.SGD(model.parameters(), lr=0.1)

    def use(part):
        run.model(part).sum().backward()
        optimizer.step()

    with pytest.raises(RuntimeError, match=r"belongs after the loop over `run.microbatches"):
        train_microbatches(run, use)


def test_a_microbatch_without_a_backward_pass_is_refused(run_of):
    run = run_of(nn.Linear(2, 1))
    with pytest.raises(RuntimeError, match=r"call `loss.backward\(\)` for each, within"):
        train_microbatches(run, lambda part: run.model(part))


def test_a_sparse_gradient_is_refused(run_of):
    run = run_of(nn.Embedding(20, 2, sparse=True))
    with pytest.raises(TypeError, match=r"shape \(20, 2\) is sparse.*sparse=False"):
        train_microbatches(run, lambda part: run.model(part).sum().backward(), data=list(range(20)))


def test_a_batch_smaller_than_its_shards_is_refused(run_of):
    with pytest.raises(ValueError, match="too few for 4 ranks or shards"):
        train_microbatches(run_of(nn.Linear(2, 1)), lambda part: None, global_batch=3)


def test_a_layer_that_waits_for_other_ranks_is_refused():
    model = nn.Sequential(nn.Linear(2, 2), nn.SyncBatchNorm(2))
    with pytest.raises(TypeError, match="layer 1 is a SyncBatchNorm"):
        DeterministicElastic().wrap(model, ALONE)


def test_less_than_one_shard_or_thread_is_refused():
    with pytest.raises(ValueError, match="must be at least 1, not 0 and 1"):
        DeterministicElastic(0)
    with pytest.raises(ValueError, match="not 4 and 0"):
        DeterministicElastic(threads=0)


def test_with_any_other_strategy_the_batch_is_the_only_microbatch(tmp_path):
    with Run(model=nn.Linear(2, 1), device="cpu", directory=tmp_path) as run:
        for _ in run.epochs(1):
            for batch in run.batches(ROWS, global_batch=20):
                assert [part is batch for part in run.microbatches(batch)] == [True]
