"""A web app that runs pack commands for the people who log in to it.

    WEBAPP_LOGINS=logins.json WEBAPP_PACKS=git uvicorn --factory app:from_environment

`logins.json` maps names to passwords: a toy, where yours asks whoever knows your people. Who logs in gets a short
session of the runtime, under the principal of the same name, with the app's packs activated on it. Its secret stays
here; the browser gets a cookie. What that principal may run is for the runtime to say: this file authorizes nothing.
"""

import asyncio
import hmac
import json
import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fastapi import Cookie, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from runtime_core.envelope import ResultEnvelope
from runtime_core.errors import (
    Denied,
    ExecRefused,
    ExecTimeout,
    ExecUnreachable,
    HcpError,
    IngressFull,
    NotFound,
    NoWorker,
    UsageError,
)
from sense_worker.client import AsyncHandle, AsyncRuntimeClient, HeldSession
from sense_worker.operator import Operator
from sense_worker.settings import Settings

SESSION_S = 900
"""A login lasts a quarter of an hour: what is stolen is soon worth nothing."""
COOKIE = "login"
SUBMITTED_KEPT = 100
"""Requests of one login that can still be asked for, the oldest forgotten first."""

# By the beginning of the error; the first that fits. An envelope is answered whole under each of them.
STATUS_OF = {
    "denied: session": 401,
    "denied: principal disabled": 401,
    "denied: audit unavailable": 503,
    "denied:": 403,
    "unknown command": 404,
    "pack not": 404,
    "confirm required": 428,
    "invalid args": 422,
    "not connected": 424,
    "binding unavailable": 503,
    "timed out": 504,
    "deadline passed": 504,
    "cancelled": 409,
    "": 502,
}
STATUS_OF_ERROR: dict[type[HcpError], int] = {
    NoWorker: 503,
    ExecUnreachable: 503,
    IngressFull: 503,
    ExecTimeout: 504,
    ExecRefused: 400,
    Denied: 403,
    NotFound: 404,
    UsageError: 422,
    HcpError: 500,
}


class Credentials(BaseModel, extra="forbid"):
    """What is typed into the form."""

    name: str
    password: str


class Asked(BaseModel, extra="forbid"):
    """A command to run. `wait` false: the answer is the request's id, to be asked for later."""

    args: dict[str, Any] = {}
    project: str | None = None
    timeout_s: float = 30.0
    idempotency_key: str | None = None
    wait: bool = True


class Login(NamedTuple):
    """Somebody who is logged in, and until when by the monotonic clock."""

    session: HeldSession
    ends_at: float
    submitted: dict[str, AsyncHandle]


class Logins:
    """Who is logged in to this process. A web app of several processes keeps this where all of them see it."""

    def __init__(self, settings: Settings, passwords: dict[str, str], packs: list[str]) -> None:
        self._settings = settings
        self._passwords = passwords
        self._packs = packs
        self._by_token: dict[str, Login] = {}

    async def enter(self, given: Credentials) -> str | None:
        """Return a token for the cookie; None for a wrong name or password."""
        known = self._passwords.get(given.name, "")
        right = hmac.compare_digest(known.encode(), given.password.encode())
        if not known or not right:
            return None
        session = await asyncio.to_thread(self._issue, given.name)
        now = time.monotonic()
        self._by_token = {token: one for token, one in self._by_token.items() if one.ends_at > now}
        token = secrets.token_urlsafe(32)
        self._by_token[token] = Login(session, now + SESSION_S, {})
        return token

    def of(self, token: str | None) -> Login | None:
        """Return the login of a token, while it lasts."""
        found = self._by_token.get(token or "")
        return found if found is not None and found.ends_at > time.monotonic() else None

    async def leave(self, token: str) -> None:
        """End a login and its session: what it asked for and has not started is denied."""
        login = self._by_token.pop(token, None)
        if login is not None:
            await asyncio.to_thread(self._revoke, login.session.session_id)

    def _issue(self, name: str) -> HeldSession:
        with Operator.open(self._settings) as operator:
            issued = operator.issue_session(name, expires_in_s=SESSION_S)
            holder = operator.acting_as(issued)
            for pack in self._packs:
                holder.activate(pack)
        return HeldSession(issued.tenant, issued.id, issued.secret)

    def _revoke(self, session_id: str) -> None:
        with Operator.open(self._settings) as operator:
            operator.revoke_session(session_id)


def make_app(settings: Settings, passwords: dict[str, str], packs: list[str]) -> FastAPI:
    """Return the app for a home and a server (`settings`), who may log in, and the packs they get."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # One client for everybody; each login's is the same under another session.
        async with AsyncRuntimeClient(HeldSession("", "", ""), str(settings.redis_url)) as client:
            app.state.client, app.state.logins = client, Logins(settings, passwords, packs)
            yield

    app = FastAPI(title="Pack commands", lifespan=lifespan)
    app.post("/login", status_code=204)(log_in)
    app.post("/logout", status_code=204)(log_out)
    app.post("/exec/{pack_id}/{verb_key}")(run)
    app.get("/requests/{message_id}")(result)
    app.delete("/requests/{message_id}", status_code=202)(cancel)
    app.exception_handler(HcpError)(failed)
    return app


def from_environment() -> FastAPI:
    """Return the app as SENSE_… and WEBAPP_… say it."""
    passwords = json.loads(Path(os.environ["WEBAPP_LOGINS"]).read_bytes())
    return make_app(Settings.load(), passwords, os.environ.get("WEBAPP_PACKS", "").split())


async def logged_in(request: Request, login: Annotated[str | None, Cookie()] = None) -> Login:
    """Return whose cookie it is; 401 without one that is good."""
    logins: Logins = request.app.state.logins
    found = logins.of(login)
    if found is None:
        raise HTTPException(401, "log in first")
    return found


Holder = Annotated[Login, Depends(logged_in)]


async def log_in(request: Request, response: Response, given: Credentials) -> None:
    """Log in: the answer sets the cookie."""
    token = await request.app.state.logins.enter(given)
    if token is None:
        raise HTTPException(401, "wrong name or password")
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, token, max_age=SESSION_S, httponly=True, secure=secure, samesite="strict")


async def log_out(request: Request, response: Response, login: Annotated[str | None, Cookie()] = None) -> None:
    """Log out."""
    await request.app.state.logins.leave(login or "")
    response.delete_cookie(COOKIE)


async def run(request: Request, pack_id: str, verb_key: str, asked: Asked, holder: Holder) -> Response:
    """Run a command and answer its result envelope, or 202 and where to ask for it."""
    client: AsyncRuntimeClient = request.app.state.client.under(holder.session)
    handle = await client.submit(
        pack_id,
        verb_key,
        asked.args,
        project=asked.project,
        timeout_s=asked.timeout_s,
        idempotency_key=asked.idempotency_key,
    )
    if asked.wait:
        return answered(await handle.result())
    holder.submitted[handle.message_id] = handle
    while len(holder.submitted) > SUBMITTED_KEPT:
        del holder.submitted[next(iter(holder.submitted))]
    return JSONResponse({"id": handle.message_id}, 202, {"Location": f"/requests/{handle.message_id}"})


async def result(message_id: str, holder: Holder) -> Response:
    """Answer the result envelope of a request, or 202 while there is none."""
    handle = submitted(holder, message_id)
    status = await handle.status()
    if status != "done":
        return JSONResponse({"id": message_id, "status": status}, 202)
    return answered(await handle.result())


async def cancel(message_id: str, holder: Holder) -> None:
    """Ask that a request is not started, or ended; a write that runs goes on."""
    await submitted(holder, message_id).cancel()


def submitted(holder: Login, message_id: str) -> AsyncHandle:
    """Return a request of this login; 404 for anybody else's."""
    if message_id not in holder.submitted:
        raise HTTPException(404, "no such request")
    return holder.submitted[message_id]


def answered(envelope: ResultEnvelope) -> Response:
    """Return a result envelope under the status that fits it."""
    error = envelope.error or ""
    status = 200 if envelope.ok else next(code for start, code in STATUS_OF.items() if error.startswith(start))
    return JSONResponse(envelope.plain(), status)


async def failed(_: Request, error: Exception) -> Response:
    """Return what kept a request from being judged."""
    if not isinstance(error, HcpError):
        raise error
    status = next(code for kind, code in STATUS_OF_ERROR.items() if isinstance(error, kind))
    if isinstance(error, ExecRefused) and error.reason == "refused: conflict":
        status = 409
    headers = {"Retry-After": "1"} if status == 503 else None  # noqa: PLR2004
    return JSONResponse({"detail": error.reason}, status, headers)
