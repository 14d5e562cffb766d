"""The shared heap: parts that never overlap, memory that comes and goes with arrays."""

from __future__ import annotations

import gc
import os
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcoll.errors import ConfigError, TransportUnavailable
from hpcoll.runtime.arena import PAGE_NBYTES, Arena
from hpcoll.runtime.heap import Heap, new_array
from hpcoll.runtime.layout import CACHE_LINE_NBYTES
from hpcoll.runtime.shared_file import FOLDER, SharedFile

NBYTES = 64 * PAGE_NBYTES

pytestmark = pytest.mark.skipif(
    not os.access(FOLDER, os.W_OK), reason=f"NOT TESTED: {FOLDER} can't be written in"
)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3 * PAGE_NBYTES)), max_size=200))
def test_parts_of_an_arena_never_overlap_and_all_come_back(steps):
    arena = Arena(NBYTES)
    taken: dict[int, int] = {}
    for take, n in steps:
        if take:
            at = arena.take(n)
            if at is None:
                continue
            assert at >= PAGE_NBYTES
            assert at + n <= NBYTES
            assert at % (PAGE_NBYTES if n >= PAGE_NBYTES else CACHE_LINE_NBYTES) == 0
            assert all(at + n <= a or a + m <= at for a, m in taken.items())
            taken[at] = max(n, 1)
        elif taken:
            at = sorted(taken)[n % len(taken)]
            begin, end = arena.give_back(at)
            assert begin <= at
            assert at + taken.pop(at) <= end
            assert all(a + m <= begin or end <= a for a, m in taken.items())
    for at in list(taken):
        arena.give_back(at)
    assert arena.taken_nbytes == 0
    assert arena.take(NBYTES - PAGE_NBYTES) == PAGE_NBYTES


@pytest.fixture
def heap():
    made = Heap(1 << 30)
    made.file.unlink()
    return made


def blocks(heap):
    """Bytes of memory that the heap's file takes."""
    return os.fstat(heap.file._fd).st_blocks * 512


def test_memory_grows_with_arrays_and_is_free_when_they_are_dropped(heap):
    before = blocks(heap)
    arrays = [heap.empty((n, 3), np.dtype("f4")) for n in (1, 7, 5000, 300_000)]
    for i, array in enumerate(arrays):
        array[...] = i
    assert blocks(heap) >= before + sum(a.nbytes for a in arrays[2:])
    for i, array in enumerate(arrays):
        assert (array == i).all()
        assert array.flags.c_contiguous
        assert array.flags.writeable
    view = arrays[3][5:]
    del arrays, array
    gc.collect()
    assert heap.taken_nbytes >= view.nbytes  # a view keeps its array
    assert (view == 3).all()
    del view
    gc.collect()
    assert heap.taken_nbytes == 0
    assert blocks(heap) <= before + (64 << 10)


def test_a_file_is_private_to_its_user_and_leaves_no_name():
    file = SharedFile(1 << 20)
    path = FOLDER / file.name
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    file.allocate(0, 4096)
    file.bytes(0, 8)[:] = 7
    other = SharedFile(1 << 20, file.name)
    assert (other.bytes(0, 8) == 7).all()
    file.unlink()
    assert not path.exists()
    file.close()
    file.close()
    assert (other.bytes(0, 8) == 7).all()
    other.close()


def test_no_room_is_an_error_that_says_what_to_do(heap):
    with pytest.raises(TransportUnavailable, match=r"/dev/shm has no room for \d+ B .*remount"):
        heap.empty((1 << 40,), np.dtype("u1"))
    assert heap.taken_nbytes == 0


@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [
        (-1, "f4", "negative"),
        ((2, -3), "f4", "negative"),
        ("ab", "f4", "no array of shape 'ab'"),
        ((2.5,), "f4", "no array of shape"),
        (3, "nonsense", "nonsense"),
        (3, object, "Python objects"),
    ],
)
def test_bad_shapes_and_dtypes(heap, shape, dtype, words):
    for where in (heap, None):
        with pytest.raises(ConfigError, match=words):
            new_array(where, shape, dtype)


@pytest.mark.parametrize("shape", [(), 3, (0, 4), np.int64(5), [2, 3]])
def test_shapes_are_those_of_numpy(heap, shape):
    for where in (heap, None):
        got = new_array(where, shape, "i2")
        want = np.empty(shape, "i2")
        assert (got.shape, got.dtype, got.flags.writeable) == (want.shape, want.dtype, True)


def test_a_forked_process_frees_nothing(heap):
    array = heap.empty((1 << 20,), np.dtype("u1"))
    array[:] = 5
    pid = os.fork()
    if pid == 0:
        del array
        gc.collect()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert (array == 5).all()
