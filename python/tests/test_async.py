"""`async for`: other tasks run, and a cancelled wait loses nothing."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Callable

import infeed
import pytest
from infeed import Loader

LONG = "synthetic://?count=2000&height=64&width=64&classes=3"


def loader() -> Loader:
    return Loader(LONG, batch_size=50, num_workers=1, prefetch=1)


def test_other_tasks_run_meanwhile() -> None:
    asked: list[threading.Event] = []

    class Asks:
        """Each item but the first, which opening looks at, waits for another task."""

        def __len__(self) -> int:
            return 100

        def __getitem__(self, i: int) -> int:
            if i:
                answered = threading.Event()
                asked.append(answered)
                assert answered.wait(60), "no other task runs"
            return i

    async def main() -> list[int]:
        async def answer() -> None:
            while True:
                while asked:
                    asked.pop().set()
                await asyncio.sleep(0)

        other = asyncio.create_task(answer())
        records = [record async for batch in Loader(Asks(), batch_size=5) for record in batch.records]
        other.cancel()
        return records

    assert asyncio.run(main()) == list(range(100))


def test_a_cancelled_wait_loses_nothing() -> None:
    want = [batch.records for batch in loader()]

    async def main() -> list[list[int]]:
        here = loader()
        batches, got = aiter(here), []
        for _ in range(20):
            waiting = asyncio.ensure_future(anext(batches))
            await asyncio.sleep(0)
            if waiting.cancel():
                try:
                    got.append((await waiting).records)
                except asyncio.CancelledError:
                    pass
            else:
                got.append(waiting.result().records)
        async for batch in batches:
            got.append(batch.records)
        # The same loader, its next epoch.
        assert len([batch async for batch in here]) == len(here)
        return got

    assert asyncio.run(main()) == want


def test_two_loaders_in_one_loop() -> None:
    async def rows() -> int:
        return sum([batch.size async for batch in loader()])

    async def main() -> list[int]:
        return list(await asyncio.gather(rows(), rows(), rows()))

    assert asyncio.run(main()) == [2000] * 3


class Waits:
    """Numbers, each of which but the first waits until somebody lets it go."""

    def __init__(self, count: int, go: threading.Semaphore) -> None:
        self.count, self.go = count, go

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> int:
        if i:
            assert self.go.acquire(timeout=60), "nobody lets it go"
        return i


async def all_wait(tasks: list[asyncio.Task[list[int]]]) -> None:
    """Each has begun, and as much as it can do without a batch is done."""
    for _ in range(10 * len(tasks)):
        await asyncio.sleep(0)


def test_tasks_share_an_iterator_and_all_end() -> None:
    go = threading.Semaphore(0)

    async def main() -> None:
        here = Loader(Waits(40, go), batch_size=2, num_workers=1, prefetch=1)
        for _ in range(2):
            batches = aiter(here)

            async def work(batches: infeed.Batches = batches) -> list[int]:
                return [record async for batch in batches for record in batch.records]

            tasks = [asyncio.create_task(work()) for _ in range(4)]
            await all_wait(tasks)
            # More than there are: the next epoch is read ahead.
            go.release(100)
            got = await asyncio.wait_for(asyncio.gather(*tasks), 60)
            assert sorted(sum(got, [])) == list(range(40))

    asyncio.run(main())


def test_a_batch_that_comes_by_the_way_wakes_who_waits() -> None:
    go = threading.Semaphore(0)

    async def main() -> list[int]:
        batches = aiter(Loader(Waits(3, go), batch_size=1, num_workers=1, prefetch=2))
        first = await anext(batches)
        waits = asyncio.create_task(batches.__anext__())
        await asyncio.sleep(0)
        go.release(1)
        # It has rung, and the loop has not heard it.
        assert batches._stream is not None
        select.select([batches._stream.fileno()], [], [])
        by_the_way = await anext(batches)
        go.release(100)
        last = await asyncio.wait_for(waits, 60)
        return [batch.records[0] for batch in (first, by_the_way, last)]

    assert asyncio.run(main()) == [0, 1, 2]


def test_an_error_ends_all_tasks(damaged: str) -> None:
    async def main() -> list[str]:
        batches = aiter(Loader(damaged, batch_size=1, transform="center_crop:24"))

        async def work() -> str:
            try:
                async for _ in batches:
                    await asyncio.sleep(0)
            except infeed.Error:
                return "error"
            return "end"

        return sorted(await asyncio.wait_for(asyncio.gather(*[work() for _ in range(4)]), 60))

    assert asyncio.run(main()) == ["end", "end", "end", "error"]


@pytest.mark.parametrize("ask", [next, lambda batches: asyncio.run(batches.__anext__())])
def test_threads_and_loops_do_not_share_an_iterator(ask: Callable[[infeed.Batches], object]) -> None:
    go = threading.Semaphore(0)

    async def main() -> None:
        batches = aiter(Loader(Waits(4, go), batch_size=4))
        waits = asyncio.create_task(batches.__anext__())
        await asyncio.sleep(0)
        # It has been woken, and has not looked again.
        stream = batches._stream
        assert stream is not None
        batches._wake(stream)
        with pytest.raises(RuntimeError, match="a loader of its own"):
            await asyncio.to_thread(ask, batches)
        go.release(100)
        assert (await asyncio.wait_for(waits, 60)).records == [0, 1, 2, 3]

    asyncio.run(main())
