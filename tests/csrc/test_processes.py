"""Living in a process: fork, exit, signals, sleep, sizing, and no allocation.

Each test runs a script in an interpreter of its own, on two threads whatever the machine has.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.patience import PATIENCE
from support.skip_list import needs

from kernelrt.native import core

from .conftest import HERE, compile_c

ROUNDS = int(os.environ.get("KERNELRT_SOAK", "20"))

PRELUDE = """
import ctypes, os, signal, sys, threading, time, warnings
import numpy as np
from kernelrt.native.core import get_num_threads, pool_limit, set_num_threads
from kernelrt._dispatch import CUSTOM, HOST_PARALLEL_SAFE, KERNEL, PlanCore

library = ctypes.CDLL(sys.argv[1])
address = lambda name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value
counter = np.zeros(1, np.int64)

def burner(us, chunks, ops=1):
    op = (KERNEL, address("burn"), (counter.ctypes.data,), (us, 0), chunks, 1,
          HOST_PARALLEL_SAFE, 1000 * us * chunks, ())
    return PlanCore([op] * ops)

def run(plan, times=1):
    before = counter[0]
    for _ in range(times):
        plan.execute()
    return counter[0] - before

def threads():
    return len(os.listdir("/proc/self/task"))

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
"""

linux, glibc, two_cpus = needs("Linux"), needs("glibc"), needs("two threads")


@pytest.fixture
def script(kernels, tmp_path):
    def run(body: str, **environment: str) -> str:
        source = f"patience = {PATIENCE:.0f}\n{PRELUDE}" + textwrap.dedent(body)
        same_package = str(Path(core.__file__).parents[1])
        done = subprocess.run(
            [sys.executable, "-c", source, kernels.path],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=tmp_path,
            env={
                **os.environ,
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONPATH": same_package,
                **environment,
            },
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


FORK = f"""
def fork_and_expect(plan):
    child = os.fork()
    if child == 0:
        signal.alarm(patience)  # which ends it, and so makes its status another one
        try:
            ok = run(plan, 3) == 24
            os._exit(0 if ok else 1)
        except BaseException:
            os._exit(2)
    status = os.waitpid(child, 0)[1]
    assert status == 0, status

plan = burner(50, 8)
rounds = {ROUNDS}
"""


def test_fork_before_first_use(script):
    script(FORK + "for _ in range(rounds): fork_and_expect(plan)")


def test_fork_after_use(script):
    script(
        FORK
        + """
for _ in range(rounds):
    assert run(plan) == 8
    fork_and_expect(plan)
    assert run(plan) == 8
"""
    )


def test_fork_from_another_thread(script):
    script(
        FORK
        + """
run(plan)
failures = []
def forks():
    try:
        for _ in range(rounds):
            fork_and_expect(plan)
            run(plan)
    except BaseException as error:
        failures.append(error)
thread = threading.Thread(target=forks)
thread.start()
thread.join()
assert not failures, failures
"""
    )


def test_fork_while_another_thread_executes(script):
    """The child finds the plan's lock held by a thread that it does not have."""
    script(
        FORK
        + """
stop = False
def execute():
    while not stop:
        plan.execute()
thread = threading.Thread(target=execute)
thread.start()
try:
    for _ in range(rounds):
        fork_and_expect(plan)
finally:
    stop = True
    thread.join()
"""
    )


def test_fork_within_a_custom_function(script):
    script(
        FORK
        + """
def forks():
    fork_and_expect(plan)
outer = PlanCore([(CUSTOM, forks, (), (), 1, -1, 0, 0, ())])
for _ in range(3):
    outer.execute()
assert run(plan) == 8
"""
    )


def test_exit_with_live_plans(script):
    script("plan = burner(100, 8); run(plan, 10)")


def test_exit_while_a_daemon_thread_executes(script):
    script(
        """
        plan = burner(2000, 8)
        threading.Thread(target=lambda: [plan.execute() for _ in iter(int, 1)], daemon=True).start()
        while not counter[0]:
            time.sleep(0.001)
        """
    )


def test_exit_waits_for_daemon_threads_and_lets_no_one_in(script):
    """Whatever runs at exit must not outlive the code and the buffers it uses."""
    script(
        """
        from kernelrt.native.core import _wait_for_daemon_threads
        plan = burner(10_000, 2, ops=10_000)  # takes minutes
        threading.Thread(target=lambda: [plan.execute() for _ in iter(int, 1)], daemon=True).start()
        while not counter[0]:
            time.sleep(0.001)
        assert _wait_for_daemon_threads()
        before = counter[0]
        assert before < 15000, "the plan ran to its end"
        time.sleep(0.05)
        assert counter[0] == before
        """
    )


LATE = """
def late():
    assert run(plan, 3) == 24
    print("ran", flush=True)
plan = burner(100, 8)
"""


@pytest.mark.cases(1)
@pytest.mark.parametrize("when", ["atexit", "del", "thread", "daemon", "child"])
def test_a_plan_that_runs_while_the_process_ends(script, when):
    """After kernelrt's own handler, from the end of a global, from threads that others wait for."""
    out = script(
        LATE
        + {
            "atexit": """
            import atexit
            # Handlers run in reverse order; kernelrt's is there already.
            from kernelrt.native.core import _wait_for_daemon_threads
            atexit.unregister(_wait_for_daemon_threads)
            atexit.register(late)
            atexit.register(_wait_for_daemon_threads)
            """,
            "del": """
            class Last:
                def __init__(self):
                    self.late = late
                    self.need = run, plan, counter, print
                def __del__(self):
                    self.late()
            last = Last()
            """,
            "thread": """
            import atexit
            from kernelrt.native.core import _wait_for_daemon_threads
            def join():
                go.set()
                thread.join()
            atexit.unregister(_wait_for_daemon_threads)
            atexit.register(join)
            atexit.register(_wait_for_daemon_threads)
            go = threading.Event()
            thread = threading.Thread(target=lambda: (go.wait(), late()), daemon=True)
            thread.start()
            """,
            "daemon": """
            def for_ever():
                while True:
                    plan.execute()
            threads = [threading.Thread(target=for_ever, daemon=True) for _ in range(3)]
            for thread in threads:
                thread.start()
            while not counter[0]:
                time.sleep(0.001)
            print("ran", flush=True)
            """,
            "child": """
            def for_ever():
                while True:
                    plan.execute()
            threading.Thread(target=for_ever, daemon=True).start()
            for _ in range(10):
                time.sleep(0.003)
                child = os.fork()
                if child == 0:
                    from kernelrt.native.core import _wait_for_daemon_threads
                    os._exit(not _wait_for_daemon_threads())
                assert os.waitpid(child, 0)[1] == 0
            print("ran", flush=True)
            """,
        }[when].replace("\n            ", "\n")
    )
    assert out.count("ran") == 1


@two_cpus
@pytest.mark.cases(1 / 4)
def test_a_fork_by_a_signal_handler_within_a_region(script):
    """The child is without the threads that had a share of the run: it learns so, and goes on."""
    script(
        """
        from kernelrt.errors import ForkError
        parent = os.getpid()
        children = []
        def fork(*_):
            children.append(os.fork())
            if os.getpid() != parent:  # a child forks no more, wherever it goes on
                signal.signal(signal.SIGALRM, signal.SIG_IGN)
        def end():
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(patience)
            assert run(burner(50, 8), 3) == 24
            os._exit(0)
        signal.signal(signal.SIGALRM, fork)
        plan = burner(500, 200)
        for _ in range(10):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            try:
                plan.execute()
            except ForkError:
                assert os.getpid() != parent
            while os.getpid() == parent and signal.getitimer(signal.ITIMER_REAL)[0]:
                time.sleep(0.001)
            if os.getpid() != parent:
                end()
        if os.getpid() != parent:
            end()
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        assert len(children) == 10 and run(burner(50, 8), 3) == 24
        """
    )


@linux
@two_cpus
def test_workers_take_faults_and_leave_other_signals(script):
    script(
        """
        run(burner(100, 8), 10)
        mine = threading.get_native_id()
        others = [t for t in map(int, os.listdir("/proc/self/task")) if t != mine]
        assert others
        for task in others:
            with open(f"/proc/self/task/{task}/status") as file:
                [blocked] = [int(line.split()[1], 16) for line in file if "SigBlk" in line]
            for name in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"):
                assert not blocked >> (getattr(signal, name) - 1) & 1, name
            for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGCHLD", "SIGUSR1", "SIGPROF"):
                assert blocked >> (getattr(signal, name) - 1) & 1, name
        """
    )


@pytest.mark.cases(1)
@two_cpus
@pytest.mark.parametrize("megabytes", [0, 16])
def test_a_kernel_may_use_as_much_stack_on_a_worker(script, megabytes):
    script(
        f"""
import resource
if {megabytes}:
    resource.setrlimit(resource.RLIMIT_STACK, ({megabytes} << 20, resource.RLIM_INFINITY))
op = (KERNEL, address("deep"), (counter.ctypes.data,), (0, 0), 16, 1, HOST_PARALLEL_SAFE,
      10**7, ())
assert run(PlanCore([op]), 20) == 320
"""
    )


def test_interrupt_ends_a_parallel_plan(script):
    script(
        """
        burn = (KERNEL, address("burn"), (counter.ctypes.data,), (1000, 0), 2, 1,
                HOST_PARALLEL_SAFE, 2_000_000, ())
        interrupt = (KERNEL, address("interrupt"), (), (), 1, -1, HOST_PARALLEL_SAFE, 1000, ())
        plan = PlanCore([burn] * 10 + [interrupt] + [burn] * 2000)
        try:
            plan.execute()
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("not interrupted")
        assert 10 < counter[0] < 2000
        plan = burner(10, 8)
        assert run(plan, 5) == 40
        """
    )


SIGNALLED = """
burn = (KERNEL, address("burn"), (counter.ctypes.data,), (1000, 0), 2, 1,
        HOST_PARALLEL_SAFE, 2_000_000, ())
signalled = (KERNEL, address("interrupt"), (), (), 1, -1, HOST_PARALLEL_SAFE, 1000, ())

def stopped(plan, error=KeyboardInterrupt):
    counter[0] = 0
    try:
        plan.execute()
    except error:
        return counter[0] < 20_000
    return False
"""


def test_signals_reach_handlers_whoever_set_them_and_when(script):
    script(
        SIGNALLED
        + """
import _thread
plan = PlanCore([signalled] + [burn] * 10_000)
for _ in range(3):  # before the handler is counted, and after
    assert stopped(plan)

class Told(Exception):
    pass

def tell(number, frame):
    raise Told

signal.signal(signal.SIGINT, tell)
assert signal.getsignal(signal.SIGINT) is tell
assert stopped(plan, Told) and stopped(plan, Told)
assert signal.signal(signal.SIGINT, signal.default_int_handler) is tell

# A file that others are woken by, and system calls that go on, stay as they were set.
read, write = os.pipe()
os.set_blocking(write, False)
signal.set_wakeup_fd(write)
signal.siginterrupt(signal.SIGINT, False)
assert stopped(plan) and stopped(plan)
assert os.read(read, 10) == bytes([signal.SIGINT] * 2)
assert signal.set_wakeup_fd(-1) == write

signal.signal(signal.SIGINT, signal.SIG_IGN)
few = PlanCore([signalled] + [burn] * 50)
few.execute()
signal.signal(signal.SIGINT, signal.default_int_handler)

# No signal comes here.
long = PlanCore([burn] * 10_000)
def interrupt():
    while not counter[0]:
        time.sleep(0.001)
    _thread.interrupt_main()

counter[0] = 0
threading.Thread(target=interrupt).start()
assert stopped(long)

child = os.fork()
if child == 0:
    signal.alarm(patience)
    os._exit(0 if stopped(plan) else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    )


def test_a_plan_beside_a_thread_that_keeps_the_gil_goes_on(script):
    script(
        SIGNALLED
        + """
holding = ctypes.PyDLL(sys.argv[1])  # its functions keep the GIL
plan = PlanCore([burn] * 100)
plan.set_threads(1)
holding.reaches.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
beside = threading.Thread(target=plan.execute)
beside.start()
assert library.reaches(ctypes.c_void_p(counter.ctypes.data), ctypes.c_int64(1),
                       ctypes.c_int64(patience))
assert holding.reaches(counter.ctypes.data, 200, patience // 2), counter
beside.join()
"""
    )


@linux
@two_cpus
def test_nothing_spins_after_the_last_execute(script):
    script(
        """
        plan = burner(100, 8)
        run(plan, 10)
        assert threads() == get_num_threads(), (threads(), get_num_threads())
        workers = [t for t in os.listdir("/proc/self/task") if int(t) != threading.get_native_id()]
        def states():
            for worker in workers:
                with open(f"/proc/self/task/{worker}/status") as file:
                    yield [line for line in file if line.startswith(("State", "voluntary"))]
        while any("S (sleeping)" not in state for state, _ in states()):
            time.sleep(0.01)  # the script is ended where a worker never sleeps
        before = list(states())
        time.sleep(0.3)
        assert list(states()) == before, "a worker woke with nothing to do"
        """
    )


@pytest.mark.cases(1)
@linux
@two_cpus
@pytest.mark.parametrize(("us", "ops"), [(0, 100), (1, 1)])
def test_small_plans_start_no_thread(script, us, ops):
    script(
        f"""
        plan = burner({us}, 8, {ops})
        run(plan, 100)
        assert threads() == 1
        """
    )


@pytest.mark.cases(1)
@linux
@two_cpus
@pytest.mark.parametrize("how", ["environment", "process", "plan"])
def test_one_thread_when_asked(script, how):
    environment = {"KERNELRT_THREADS": "1"} if how == "environment" else {}
    script(
        f"""
        how = {how!r}
        plan = burner(100, 8)
        if how == "environment":
            assert pool_limit() == 1
            set_num_threads(2)
            assert get_num_threads() == 1
        elif how == "process":
            set_num_threads(1)
        else:
            plan.set_threads(1)
        assert run(plan, 10) == 80
        assert threads() == 1
        """,
        **environment,
    )


@pytest.mark.parametrize("text", ["0", "-3", "many", "", "99999999999999999999"])
def test_senseless_thread_counts_are_no_limit(script, text):
    script(
        "from kernelrt.native.core import affinity_count\n"
        "assert 1 <= pool_limit() <= affinity_count()",
        KERNELRT_THREADS=text,
    )


@two_cpus
@pytest.mark.parametrize(
    ("own", "others", "usual"),
    [
        ("", "1", 1), ("", " 1 ", 1), ("", "1,4", 1), ("many", "1", 1),
        ("", "0", 2), ("", "1x", 2), ("", ",1", 2), ("", "", 2), ("", "9999", 2), ("2", "1", 2),
    ],
)  # fmt: skip
def test_the_usual_number_of_threads(script, own, others, usual):
    script(
        f"""
        assert min(get_num_threads(), 2) == {usual}, get_num_threads()
        assert pool_limit() >= 2
        set_num_threads(2)  # what the program says holds
        assert get_num_threads() == 2
        """,
        KERNELRT_THREADS=own,
        OMP_NUM_THREADS=others,
    )


@linux
@glibc
@two_cpus
def test_threads_that_cannot_start_mean_fewer_and_one_warning(script, tmp_path):
    preload = compile_c(
        [HERE / "preload.c"], tmp_path / "preload.so", ["-shared", "-fPIC", "-DNO_THREADS"]
    )
    script(
        """
        plan = burner(100, 8)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert run(plan, 10) == 80
        assert [w.category for w in caught] == [RuntimeWarning], caught
        set_num_threads(2)  # asks for another try
        warnings.simplefilter("error")
        try:
            burner(100, 8).execute()
        except RuntimeWarning:
            pass
        else:
            raise AssertionError("no warning")
        assert run(plan, 10) == 80
        """,
        LD_PRELOAD=str(preload),
    )


@linux
@glibc
def test_a_plan_of_a_thousand_kernels_does_not_allocate(script, tmp_path):
    preload = compile_c([HERE / "preload.c"], tmp_path / "preload.so", ["-shared", "-fPIC"])
    script(
        """
        allocations = ctypes.CDLL(os.environ["LD_PRELOAD"]).allocations
        allocations.restype = ctypes.c_int64
        nothing = (KERNEL, address("nothing"), (), (), 1, -1, HOST_PARALLEL_SAFE, 0, ())
        serial = PlanCore([nothing] * 1000)
        parallel = burner(1, 8, ops=1000)
        for plan in (serial, parallel):
            def allocated(times):
                before = allocations()
                for _ in range(times):
                    plan.execute()
                return allocations() - before
            allocated(3)
            assert allocated(1) == allocated(50), (allocated(1), allocated(50))
        """,
        LD_PRELOAD=str(preload),
        PYTHONMALLOC="malloc",
    )


@linux
@pytest.mark.cases(1 / 4)
def test_memory_does_not_grow(script):
    script(
        f"""
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1])
        plan = burner(0, 4, ops=50)
        def work(times):
            for _ in range(times):
                plan.execute()
                burner(1, 4, ops=20).execute()
        work(2000)
        before = resident()
        work({100 * ROUNDS})
        assert resident() - before < 64
        """
    )
