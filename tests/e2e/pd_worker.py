"""A worker without a model, run as a process: `python pd_worker.py PORT NAME`. The prompt says how to behave.

`hang` waits for ever, `held` until `POST /release`, `fail` is a 500, `refuse` a 400; any other is answered.
`GET /seen` tells what has arrived.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import orjson
import uvicorn


class PdWorker:
    def __init__(self, name: str) -> None:
        self._name = name
        self._bodies: list[dict[str, Any]] = []
        self._num_hung_up = 0
        self._released = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        match scope["path"]:
            case "/generate" | "/v1/completions" | "/v1/chat/completions":
                await self._generate(orjson.loads(body), receive, send)
            case "/seen":
                seen = {"bodies": self._bodies, "num_hung_up": self._num_hung_up, "name": self._name}
                await reply(send, 200, orjson.dumps(seen))
            case "/release":
                self._released.set()
                await reply(send, 200, b"{}")
            case _:
                await reply(send, 200, b"{}")

    async def _generate(self, body: dict[str, Any], receive: Any, send: Any) -> None:
        self._bodies.append(body)
        prompt = body.get("text") or body["messages"][-1]["content"]
        if prompt in ("fail", "refuse"):
            await reply(send, 500 if prompt == "fail" else 400, b'{"error":{"message":"as told"}}')
            return
        if body.get("stream"):
            await self._stream(prompt, receive, send)
            return
        if await self._wait(prompt, receive):
            await reply(send, 200, orjson.dumps({"text": f"{self._name}: {prompt}"}))

    async def _stream(self, prompt: str, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": event("first "), "more_body": True})
        if await self._wait(prompt, receive):
            end = event("last") + b"data: [DONE]\n\n"
            await send({"type": "http.response.body", "body": end, "more_body": False})

    async def _wait(self, prompt: str, receive: Any) -> bool:
        """True when it is time to answer, False when the router has hung up before."""
        if prompt not in ("hang", "held"):
            return True
        hung_up = asyncio.ensure_future(receive())
        released = asyncio.ensure_future(self._released.wait() if prompt == "held" else asyncio.sleep(3600))
        done, pending = await asyncio.wait({hung_up, released}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        self._num_hung_up += hung_up in done
        return released in done


def event(text: str) -> bytes:
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


async def reply(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def main(port: int, name: str) -> None:
    config = uvicorn.Config(PdWorker(name), port=port, lifespan="off", ws="none", log_level="error")
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
