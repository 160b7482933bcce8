"""Signals, exits, forks: each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable

import infeed
import pytest

Script = Callable[[str], "subprocess.Popen[str]"]
PATIENCE = 120


def ends(process: subprocess.Popen[str]) -> str:
    """What it printed, once it has ended well."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"it hangs: {process.communicate()}")
    assert process.returncode == 0, err
    assert "Traceback" not in err and "panicked" not in err, err
    return out


@pytest.mark.parametrize(
    "body",
    [
        "it = iter(many()); next(it)",
        "it = iter(many())",
        "it = iter(many()); x = next(it)['image']; del it",
        "it = iter(many()); x = next(it)['image'].__dlpack__()",
        "loader = many(); next(iter(loader)); loader.close()",
        """
        goes = threading.Event()
        def loop():
            for batch in many():
                goes.set()
        threading.Thread(target=loop, daemon=True).start()
        goes.wait()
        """,
        """
        import asyncio
        async def main():
            await anext(aiter(many()))
        asyncio.run(main())
        """,
        # Kept by what the interpreter tears down last.
        "sys.kept = iter(many()); next(sys.kept)",
        """
        class Cycle: pass
        a = Cycle(); a.it, a.me = iter(many()), a; next(a.it); del a
        """,
    ],
)
def test_processes_exit_whatever_is_alive(script: Script, body: str) -> None:
    assert ends(script(textwrap.dedent(body) + "\nprint('bye')")).strip() == "bye"


def test_ctrl_c_ends_a_loop(script: Script) -> None:
    process = script(
        """
        loader, batches = many(), 0
        try:
            while True:
                for batch in loader:
                    batches += 1
                    if batches == 5:
                        print("go", flush=True)
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    process.send_signal(signal.SIGINT)
    assert ends(process) == "interrupted\n"


def test_ctrl_c_ends_a_wait_for_a_store_that_does_not_answer(script: Script) -> None:
    # It accepts, and says nothing.
    process = script(
        """
        import socket
        server = socket.create_server(("127.0.0.1", 0))
        os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.getsockname()[1]}", "AWS_ALLOW_HTTP": "true",
                       "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "x"}
        asked = []
        def listen():
            asked.append(server.accept())
            print("go", flush=True)
        threading.Thread(target=listen, daemon=True).start()
        try:
            infeed.open("s3://bucket/train")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            os._exit(0)
        """
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    process.send_signal(signal.SIGINT)
    assert ends(process) == "interrupted\n"


def test_a_wait_that_was_interrupted_loses_nothing(script: Script) -> None:
    out = ends(
        script(
            """
            class Alarm(Exception): pass
            class Slow:
                next_ring = threading.Event()
                def __len__(self): return 100
                def __getitem__(self, i):
                    # It comes when the wait for it was interrupted; opening looks at the first.
                    if i and len(got) < len(want):
                        assert self.next_ring.wait(60)
                    return i
            def ring(*_):
                this, Slow.next_ring = Slow.next_ring, threading.Event()
                this.set()
                raise Alarm
            signal.signal(signal.SIGALRM, ring)
            want = [list(range(i, i + 10)) for i in range(0, 100, 10)]
            got, interrupted = [], 0
            loader = infeed.Loader(Slow(), batch_size=10, num_workers=1, prefetch=1)
            batches = iter(loader)
            while len(got) < len(want):
                before = loader.state_dict()
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.001)
                    batch = next(batches)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Alarm:
                    if loader.state_dict() == before:
                        interrupted += 1
                    else:
                        # It was handed over, and the signal came on its way to the name.
                        got.append(want[len(got)])
                    continue
                got.append(batch.records)
            Slow.next_ring.set()
            print(got == want, interrupted > 0, next(batches, None))
            """
        )
    )
    assert out.split() == ["True", "True", "None"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told_and_its_parent_goes_on(script: Script) -> None:
    out = ends(
        script(
            """
            loader = infeed.Loader("synthetic://?count=400&height=32&width=32", batch_size=20)
            batches = iter(loader)
            next(batches)
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                for use in (lambda: next(batches), lambda: iter(loader), lambda: len(loader), loader.report):
                    try:
                        use()
                    except RuntimeError as error:
                        assert "after the fork" in str(error), error
                    else:
                        os._exit(9)
                # One of its own works, and dropping its parent's hurts nobody.
                own = infeed.Loader("synthetic://?count=400&height=32&width=32", batch_size=20)
                n = sum(batch.size for batch in own)
                del batches, loader, own
                print("child", n, flush=True)
                sys.exit(0)
            _, status = os.waitpid(child, 0)
            print("parent", status, sum(1 for _ in batches), sum(1 for _ in loader))
            """
        )
    )
    assert out.splitlines() == ["child 400", "parent 0 19 20"]


def test_a_loader_goes_to_another_process(script: Script, folder: str) -> None:
    context = __import__("multiprocessing").get_context("spawn")
    loader = infeed.Loader(folder, batch_size=10, shuffle=7, transform="center_crop:24")
    with context.Pool(1) as pool:
        there = pool.apply(first_records, (loader,))
    assert there == next(iter(loader)).records


def first_records(loader: infeed.Loader) -> list[int]:
    return next(iter(loader)).records


def test_close_ends_another_threads_wait(script: Script) -> None:
    out = ends(
        script(
            """
            batches = iter(many(prefetch=1))
            goes, ended = threading.Event(), threading.Event()
            def loop():
                for batch in batches:
                    goes.set()
                ended.set()
            threading.Thread(target=loop).start()
            goes.wait()
            batches.close()
            print(ended.wait(60))
            """
        )
    )
    assert out == "True\n"


def test_loaders_that_are_gone_leave_nothing(folder: str) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("counts what Linux lists")

    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    def use() -> None:
        loader = infeed.Loader(folder, batch_size=50, num_workers=2, transform="center_crop:24")
        batches = iter(loader)
        next(batches)

    use()
    before = held()
    for _ in range(200):
        use()
    end = time.monotonic() + 60
    # Threads end on their own time.
    while any(now > was for now, was in zip(held(), before)):
        assert time.monotonic() < end, (before, held())
        time.sleep(0.05)


def test_what_holds_its_own_loader_is_collected(folder: str) -> None:
    import gc
    import weakref

    class Trainer:
        """Holds the loader that calls it, and its iterator."""

        def __init__(self) -> None:
            self.loader = infeed.Loader(folder, batch_size=50, transform="center_crop:24", map=self.augment)
            self.batches = iter(self.loader)
            next(self.batches)

        def augment(self, _sample: object) -> None:
            pass

    class Records:
        """A dataset that holds its loader."""

        def __init__(self, sampler: list[int] | None = None) -> None:
            self.loader = infeed.Loader(self, batch_size=5, sampler=sampler)
            self.batches = iter(self.loader)
            next(self.batches)

        def __len__(self) -> int:
            return 100

        def __getitem__(self, i: int) -> int:
            return i

    class Opened(Records):
        """One that holds itself as it was opened."""

        def __init__(self) -> None:
            self.opened = infeed.open(self)

    gone = []
    for made in (Trainer(), Records(), Records([1, 2, 3, 4, 5, 6]), Opened()):
        gone.append(weakref.ref(made))
    del made
    end = time.monotonic() + PATIENCE
    # Who is in a call just now is held by it.
    while any(it() is not None for it in gone):
        assert time.monotonic() < end, [it() for it in gone]
        gc.collect()


def test_a_daemon_thread_may_import_numpy_while_the_process_ends(script: Script) -> None:
    out = ends(
        script(
            """
            image = next(iter(many()))["image"]
            begun = threading.Event()
            # In place of numpy: its import is begun when the main thread ends.
            class Finder:
                def find_spec(self, name, path=None, target=None):
                    if name == "numpy":
                        begun.set()
                        while True: time.sleep(0)
            sys.meta_path.insert(0, Finder())
            threading.Thread(target=image.numpy, daemon=True).start()
            begun.wait()
            print("bye", flush=True)
            """
        )
    )
    assert out == "bye\n"


def test_subinterpreters_are_refused(script: Script) -> None:
    # They have another module in each version.
    out = ends(
        script(
            """
            try:
                import _interpreters as interpreters
            except ImportError:
                import _xxsubinterpreters as interpreters
            said = os.pipe()
            body = f"try:\\n import infeed\\nexcept ImportError as error:\\n import os; os.write({said[1]}, str(error).encode())"
            interpreters.run_string(interpreters.create(), body)
            os.close(said[1])
            print(os.read(said[0], 4096).decode())
            """
        )
    )
    assert "subinterpreters" in out


def test_all_goes_in_any_order(folder: str) -> None:
    import gc
    import random

    draws = random.Random(1)
    # What was there before is not looked through each time.
    gc.collect()
    gc.freeze()
    for _ in range(60):
        loader = infeed.Loader(folder, batch_size=10, transform="center_crop:24", map=None)
        batches = iter(loader)
        batch = next(batches)
        image = batch["image"]
        kept: list[object] = [loader, batches, batch, image, image.__dlpack__(), loader.dataset, loader.report()]
        del loader, batches, batch, image
        draws.shuffle(kept)
        while kept:
            kept.pop()
            if draws.random() < 0.3:
                gc.collect()
    gc.unfreeze()


def test_importing_starts_nothing(script: Script) -> None:
    out = ends(
        script(
            """
            print(len(os.listdir("/proc/self/task")), "asyncio" in sys.modules, "numpy" in sys.modules, "torch" in sys.modules)
            """
        )
    )
    assert out.split() == ["1", "False", "False", "False"]


@pytest.mark.parametrize("package", ["torch", "numpy", "jax"])
def test_what_is_not_installed_is_named(script: Script, package: str) -> None:
    out = ends(
        script(
            f"""
            for module in ("{package}", "{package}.dlpack", "{package}.utils.dlpack"):
                sys.modules[module] = None
            image = next(iter(many()))["image"]
            try:
                image.{package}()
            except ImportError as error:
                print(error)
            """
        )
    )
    assert f"pip install {package}" in out
