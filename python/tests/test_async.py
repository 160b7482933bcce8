"""`async for`: other tasks run, and a cancelled wait loses nothing."""

from __future__ import annotations

import asyncio
import threading

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
