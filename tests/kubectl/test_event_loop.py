"""Ctrl-C while a cluster is asked."""

import asyncio
import os
import signal

import pytest

from kubectl_numazones.reading.event_loop import run_until_complete


async def _value() -> int:
    return 3


def test_the_answer_is_what_the_coroutine_returns() -> None:
    assert run_until_complete(_value()) == 3


def test_ctrl_c_cancels_only_between_steps_of_the_loop() -> None:
    steps: list[str] = []

    async def interrupted_in_a_callback() -> None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[int] = loop.create_future()

        def give() -> None:
            assert not answer.done()
            os.kill(os.getpid(), signal.SIGINT)  # Python's own handler cancels the future here
            answer.set_result(1)
            steps.append("given")

        loop.call_soon(give)
        await answer
        await asyncio.sleep(3600)

    with pytest.raises(KeyboardInterrupt):
        run_until_complete(interrupted_in_a_callback())
    assert steps == ["given"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_cancellation_that_is_not_ctrl_c_stays_one() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_until_complete(cancelled())
