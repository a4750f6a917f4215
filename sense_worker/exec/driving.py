"""The blocking driver of the plans of `sense_worker.exec.asking`."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from redis.exceptions import RedisError

from sense_worker.exec.asking import unreachable
from sense_worker.publishing import Exchange, Pause

if TYPE_CHECKING:
    from collections.abc import Sequence

    import redis

    from sense_worker.exec.asking import Plan, Step
    from sense_worker.resp import Command

_T = TypeVar("_T")


def drive(client: redis.Redis, plan: Plan[_T]) -> _T:
    """Return what a plan comes to; raises what it raises, and a failure of Redis as `unreachable` says it."""
    with closing(plan):
        try:
            step = next(plan)
            while True:
                try:
                    answer = _perform(client, step)
                except RedisError as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(answer)
        except StopIteration as end:
            outcome: _T = end.value
            return outcome
        except RedisError as error:
            raise unreachable(error) from None


def _perform(client: redis.Redis, step: Step) -> list[Any] | None:
    match step:
        case Exchange(commands):
            return _say(client, commands)
        case Pause(seconds):
            time.sleep(seconds)
            return None
        case _:
            assert_never(step)


def _say(client: redis.Redis, commands: Sequence[Command]) -> list[Any]:
    if len(commands) == 1:
        return [client.execute_command(*commands[0])]  # type: ignore[no-untyped-call]
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
    return pipeline.execute()
