"""What is no request, and what is none of its routes."""

import pytest

CHAT, TEXT, TOKENIZE = "/v1/chat/completions", "/v1/completions", "/tokenize"


ERRORS = {  # what is wrong: (path, body, or fields of a chat; status, type, param, what the message contains)
    "too long": (
        "chat",
        {"text": "word " * 5000},
        400,
        "BadRequestError",
        "input_tokens",
        "maximum context length is 4096",
    ),
    "too many tokens": ("chat", {"tokens": 5000}, 400, "BadRequestError", "max_tokens", "max_tokens=5000 cannot be"),
    "no messages": (CHAT, {"model": "tiny"}, 400, "Bad Request", "body.messages", "Field required"),
    "empty messages": ("chat", {"messages": []}, 400, "BadRequestError", None, "Provide at least one message."),
    "unknown model": ("chat", {"model": "nope"}, 404, "NotFoundError", "model", "The model `nope` does not exist."),
    "temperature": ("chat", {"temperature": -1}, 400, "BadRequestError", "temperature", "temperature"),
    "top_p": ("chat", {"top_p": 2}, 400, "BadRequestError", "top_p", "top_p"),
    "max_tokens": ("chat", {"tokens": 0}, 400, "BadRequestError", "max_tokens", "max_tokens must be at least 1"),
    "no prompt": (TEXT, {"model": "tiny"}, 400, "BadRequestError", "prompt", "Either prompt or prompt_embeds"),
    "unknown token": (TEXT, {"prompt": [10**6]}, 400, "BadRequestError", None, "Token id 1000000 is out of vocabulary"),
    "messages as text": (CHAT, {"messages": "Hi"}, 400, "Bad Request", "body.messages", "valid list"),
    "tokens as text": ("chat", {"tokens": "x"}, 400, "Bad Request", "body.max_tokens", "valid integer"),
    "no tokens": ("/detokenize", {}, 400, "Bad Request", "body.tokens", "Field required"),
    "tools": (
        "chat",
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], "tool_choice": "auto"},
        400,
        "BadRequestError",
        None,
        "--enable-auto-tool-choice",
    ),
}


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS)
def test_bad_requests(play, case):
    path, body, status, kind, param, text = case

    async def story(stand):
        answered, answer = await (stand.chat(**body) if path == "chat" else stand.post(path, body))
        assert answered == status
        assert set(answer) == {"error"}
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        assert (answer["error"]["type"], answer["error"]["code"]) == (kind, status)
        assert answer["error"]["param"] == param
        assert text in answer["error"]["message"]

    play(story)


def test_bodies_that_are_no_json(play):
    async def story(stand):
        json = {"Content-Type": "application/json"}
        status, answer = await stand.post(CHAT, data=b'{"messages": [}', headers=json)
        assert (status, answer["error"]["type"]) == (400, "Bad Request")
        assert answer["error"]["param"].startswith("body.")
        assert "json_invalid" in answer["error"]["message"]
        status, answer = await stand.post(CHAT, data=b"hello", headers={"Content-Type": "text/plain"})
        assert (status, answer["error"]["type"]) == (400, "Bad Request")
        assert "Unsupported Media Type" in answer["error"]["message"]

    play(story)


def test_unknown_fields_and_roles_are_accepted(play):
    async def story(stand):
        assert (await stand.chat(no_such_field=1))[0] == 200
        assert (await stand.chat(messages=[{"role": "wizard", "content": "Hi"}]))[0] == 200

    play(story)


def test_wrong_routes(play):
    async def story(stand):
        assert await stand.get("/nope") == (404, b'{"detail":"Not Found"}')
        assert await stand.get(CHAT) == (405, b'{"detail":"Method Not Allowed"}')
        assert (await stand.post("/pause", params={"mode": "gently"}))[0] == 400
        assert (await stand.post("/sleep", params={"level": 3}))[0] == 400

    play(story)
