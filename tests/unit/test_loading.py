"""The garbage collector while modules are loaded, and afterwards."""

import gc

import pytest

from rekindle_service.loading import collector_paused


def load_what_is_missing() -> None:
    with collector_paused():
        assert not gc.isenabled()
        raise ImportError


def test_the_collector_runs_again_once_all_is_loaded_and_passes_over_it() -> None:
    try:
        with pytest.raises(ImportError):
            load_what_is_missing()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
