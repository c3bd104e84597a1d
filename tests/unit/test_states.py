from rekindle.contract.states import HOLDING_SLOTS, TERMINAL, TRANSITIONS, JobState

ACTIVE = HOLDING_SLOTS | {JobState.QUEUED}


def test_every_state_is_either_active_or_terminal():
    assert set(JobState) == ACTIVE | TERMINAL
    assert not ACTIVE & TERMINAL


def test_every_state_can_be_reached_from_the_queue():
    reached, frontier = {JobState.QUEUED}, {JobState.QUEUED}
    while frontier:
        frontier = {to for state in frontier for to in TRANSITIONS[state]} - reached
        reached |= frontier
    assert reached == set(JobState)


def test_a_job_that_is_over_can_only_go_back_to_the_queue():
    assert {to for state in TERMINAL for to in TRANSITIONS[state]} == {JobState.QUEUED}


def test_slots_are_taken_in_one_way_only():
    ways = {(state, to) for state in set(JobState) - HOLDING_SLOTS for to in TRANSITIONS[state] & HOLDING_SLOTS}
    assert ways == {(JobState.QUEUED, JobState.STARTING)}
