import asyncio

import pytest

from numazones_simulator.background import background


async def forever() -> None:
    await asyncio.Event().wait()


async def failing() -> None:
    await asyncio.sleep(0)
    raise ValueError("out of zones")


async def test_what_runs_beside_the_work_ends_with_it() -> None:
    before = asyncio.all_tasks()
    async with background(forever(), forever()):
        assert len(asyncio.all_tasks()) == len(before) + 2
    assert asyncio.all_tasks() == before


async def test_work_ends_with_the_error_of_the_background_task() -> None:
    with pytest.raises(ValueError, match="out of zones"):
        async with background(forever(), failing()):
            await asyncio.sleep(60)


async def test_errors_of_the_work_come_through_as_they_are() -> None:
    with pytest.raises(KeyError, match="zone"):
        async with background(forever()):
            raise KeyError("zone")
