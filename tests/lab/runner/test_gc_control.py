"""Collection is off within, and afterwards as it was before."""

import gc

import pytest

from fairhit_lab.runner.gc_control import no_collections


@pytest.fixture(autouse=True)
def collecting():
    """On before each test, and as it was after it, whatever the test does."""
    before = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if before else gc.disable)()


def test_collection_is_off_within_and_on_again_after_an_error():
    within = []

    def fail():
        within.append(gc.isenabled())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), no_collections():
        fail()

    assert within == [False]
    assert gc.isenabled()


def test_the_inner_one_does_not_end_the_outer_one():
    with no_collections():
        frozen = gc.get_freeze_count()
        with no_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
        assert gc.get_freeze_count() == frozen > 0

    assert gc.isenabled()


def test_what_was_off_before_stays_off():
    gc.disable()

    with no_collections():
        pass

    assert not gc.isenabled()
