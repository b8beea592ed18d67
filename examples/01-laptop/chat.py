"""Ask one question over the OpenAI chat API and print the answer while it comes. Standard library only.

python3 chat.py http://127.0.0.1:8000 "What is the capital of France?"
"""

import http.client
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

QUESTION = "What is the capital of France?"
TIMEOUT_S = 60.0
MAX_LINE_BYTES = 1 << 20


class NoAnswer(Exception):
    """The server refused, broke off, or could not be reached."""


def main(argv: list[str]) -> int:
    router = argv[0] if argv else "http://127.0.0.1:8000"
    if not router.startswith("http://") or len(argv) > 2:
        print("usage: chat.py [http://HOST:PORT [QUESTION]]", file=sys.stderr)
        return 1
    question = argv[1] if len(argv) > 1 else QUESTION
    print(f"question: {question}\nanswer:   ", end="", flush=True)
    try:
        for piece in ask(router, question):
            print(piece, end="", flush=True)
    except NoAnswer as error:
        print(f"\nerror: {error}", file=sys.stderr)
        return 1
    print()
    return 0


def ask(router: str, question: str) -> Iterator[str]:
    """The answer to one question, piece by piece; `NoAnswer` if it does not come to its end."""
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": 128,
        "stream": True,
    }
    request = urllib.request.Request(
        f"{router.rstrip('/')}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    direct = urllib.request.build_opener(
        urllib.request.ProxyHandler({})
    )  # loopback, whatever http_proxy says
    num_pieces = 0
    try:
        with direct.open(request, timeout=TIMEOUT_S) as response:
            for chunk in read_events(response):
                for piece in text_of(chunk):
                    num_pieces += 1
                    yield piece
    except urllib.error.HTTPError as error:
        said = error.read(MAX_LINE_BYTES).decode(errors="replace")
        raise NoAnswer(f"{router} answers {error.code}: {said}") from error
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"{router} does not answer: {error}") from error
    except ValueError as error:
        raise NoAnswer(f"{router} sends what is not JSON: {error}") from error
    if num_pieces == 0:
        raise NoAnswer("the answer is empty")


def read_events(response: http.client.HTTPResponse) -> Iterator[dict]:
    """The JSON of each server-sent event up to `[DONE]`."""
    while line := response.readline(MAX_LINE_BYTES):
        field, _, value = line.decode().strip().partition(":")
        if field != "data":  # blank lines end events, comments keep the connection alive
            continue
        if value.strip() == "[DONE]":
            return
        yield json.loads(value)
    raise NoAnswer("the answer broke off")


def text_of(chunk: dict) -> Iterator[str]:
    if "error" in chunk:
        raise NoAnswer(json.dumps(chunk["error"]))
    for choice in chunk["choices"]:
        if text := choice["delta"].get("content"):
            yield text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
