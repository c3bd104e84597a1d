from hypothesis import given
from hypothesis import strategies as st

from rekindle.training.rng import derived_seed
from rekindle.training.sampler import batch_sizes, next_batch_size, shard_range

SIZES = st.integers(min_value=1, max_value=5000)


@given(size=st.integers(min_value=0, max_value=5000), ranks=st.integers(min_value=1, max_value=64))
def test_every_position_of_a_batch_belongs_to_one_rank_and_shares_differ_by_one_sample_at_most(size, ranks):
    shares = [shard_range(size, rank, ranks) for rank in range(ranks)]
    assert [position for share in shares for position in share] == list(range(size))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(length=SIZES, batch=SIZES, done=st.integers(min_value=0, max_value=20))
def test_the_batches_of_an_epoch_hold_every_sample_also_of_one_continued_between_two_batches(length, batch, done):
    sizes = batch_sizes(length, batch)
    assert sum(sizes) == length
    assert max(sizes) <= batch
    assert min(sizes) >= min(length, batch // 2), "none is less than half full unless the data set is"
    assert len(sizes) == -(-length // batch)
    assert batch_sizes(length - sum(sizes[:done]), batch) == sizes[done:]


def test_a_small_last_batch_is_evened_out_with_the_batch_before_it():
    assert batch_sizes(101, 16) == [16, 16, 16, 16, 16, 11, 10]
    assert next_batch_size(24, 16) == 16
    assert next_batch_size(23, 16) == 12


def test_seeds_of_neighbours_are_unrelated_and_always_the_same():
    seeds = {derived_seed(0, epoch, index) for epoch in range(20) for index in range(50)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert derived_seed(1, 2, 3) == 1466929338816962128
