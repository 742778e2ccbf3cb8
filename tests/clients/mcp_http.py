"""Drives MCP over HTTP with the Python MCP SDK, as a real client would.

usage: mcp_http.py path/to/sess
"""

import asyncio
import json
import sys
import urllib.error
import urllib.request

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from gateway import gateway

PLAN = "# Plan\n\n1. measure\n2. cut — “twice”\n"


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def text_of(result):
    check(len(result.content) == 1, f"one block of text, not {result.content}")
    return result.content[0].text


def transport(url, token=None, **headers):
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return streamable_http_client(url, http_client=httpx2.AsyncClient(headers=headers, timeout=30))


async def whoami(client):
    return json.loads((await client.read_resource("session://current")).contents[0].text)


async def use(client):
    """Lists the tools and writes a plan; returns who we were taken for."""
    tools = {tool.name for tool in (await client.list_tools()).tools}
    check({"write_session_plan", "read_session", "sessions_send"} <= tools, f"tools: {tools}")
    written = await client.call_tool("write_session_plan", {"content": PLAN})
    check(not written.is_error, f"{written}")
    check(text_of(await client.call_tool("read_session_plan", {})) == PLAN, "the plan came back changed")
    me = await whoami(client)
    check(me["standing"] == "agent", f"{me}")
    return me


async def sessions_are_told_apart(here):
    """Each revision, with a token in the header; who calls is told by what the call brings."""
    for mode, revision in [("auto", "2026-07-28"), ("2026-07-28", "2026-07-28"), ("legacy", "2025-11-25")]:
        async with Client(transport(f"{here.url}/mcp", here.token), mode=mode) as client:
            check(client.protocol_version == revision, f"{mode}: spoke {client.protocol_version}")
            me = await use(client)
            if mode == "legacy":
                check(me["how"] == "Mcp-Session-Id of the call", f"{me}")
        print(f"PASS python sdk over http, mode {mode}, revision {revision}")
    # Two connections of an older revision are two agents.
    async with Client(transport(f"{here.url}/mcp", here.token), mode="legacy") as one:
        async with Client(transport(f"{here.url}/mcp", here.token), mode="legacy") as other:
            await use(one)
            plan = await other.call_tool("read_session_plan", {})
            check(plan.is_error, f"another agent's plan: {plan}")
            check((await whoami(one))["session_id"] != (await whoami(other))["session_id"], "the same session")
    async with Client(transport(f"{here.url}/mcp", here.token, **{"agent-session-id": "goose-1"})) as client:
        me = await use(client)
        check((me["session_id"], me["source"]) == ("goose-1", "goose"), f"{me}")
    print("PASS python sdk over http, who is calling")


async def a_token_in_the_address(here):
    made = json.loads(here.run("--json", "token", "create", "--scope", "read,write", "--session", "yesterday"))
    address = f"{here.url}/mcp/{made['secret']}"
    for mode in ["auto", "legacy"]:
        async with Client(transport(address), mode=mode) as client:
            me = await use(client)
            check(me["session_id"] == "yesterday", f"{me}")
            check(me["how"] == "the token, which stands for this session", f"{me}")
    check(here.run("plan", "show", "--session", "yesterday") == PLAN, "the plan of the session")
    here.run("token", "revoke", made["token"]["id"])
    check(refused(address) == 401, "a revoked token")
    check(refused(f"{here.url}/mcp/{here.token}") == 403, "the owner's token in an address")
    check(refused(f"{here.url}/mcp/nothing") == 401, "no token at all")
    check(made["secret"] not in here.log(), "the token stands in the log")
    print("PASS python sdk over http, a token in the address")


async def fewer_rights(here):
    made = json.loads(here.run("--json", "token", "create", "--scope", "read"))
    async with Client(transport(f"{here.url}/mcp", made["secret"])) as client:
        listed = await client.call_tool("list_sessions", {})
        check(not listed.is_error, f"{listed}")
        try:
            await client.call_tool("write_session_plan", {"content": PLAN})
            check(False, "a token that only reads wrote a plan")
        except MCPError as error:
            check("needs a token with the scope write" in str(error), f"{error}")
    made = json.loads(here.run("--json", "token", "create", "--scope", "read,write", "--agent", "root"))
    check(refused(f"{here.url}/mcp", made["secret"]) == 403, "a token for an agent")
    check(refused(f"{here.url}/mcp") == 401, "no token")
    check(refused(f"{here.url}/mcp", here.token, Origin="https://evil.example") == 403, "a foreign page")
    check(refused(f"{here.url}/mcp", here.token, Host="evil.example") == 403, "a foreign name")
    print("PASS python sdk over http, rights")


async def another_connection_is_nobodys(here):
    """A session of an older revision is used only with the token with which it began."""
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    answer = post(f"{here.url}/mcp", here.token, request)
    connection = answer.headers["Mcp-Session-Id"]
    body = answer.read().decode()
    # Gemini dies of an empty event before the answer.
    check(body.startswith("data: {"), f"the stream begins with {body[:40]!r}")
    made = json.loads(here.run("--json", "token", "create", "--scope", "read"))
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    headers = {"Mcp-Session-Id": connection, "MCP-Protocol-Version": "2025-06-18"}
    check(refused(f"{here.url}/mcp", made["secret"], listing, **headers) == 404, "somebody else's connection")
    listed = post(f"{here.url}/mcp", here.token, listing, **headers).read().decode()
    check("write_session_plan" in listed, listed)
    print("PASS http, connections")


def post(url, token=None, message=None, **headers):
    request = urllib.request.Request(url, data=json.dumps(message or {}).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    request.add_header("Accept", "application/json, text/event-stream")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    for name, value in headers.items():
        request.add_header(name, value)
    return urllib.request.urlopen(request, timeout=30)


def refused(url, token=None, message=None, **headers):
    """Returns the status of a refusal, which has the one shape of all errors."""
    try:
        answer = post(url, token, message, **headers)
    except urllib.error.HTTPError as error:
        body = json.load(error)
        check(body["error"]["type"] and body["error"]["message"], f"{body}")
        return error.code
    raise AssertionError(f"it was not refused: {answer.read()}")


async def main(sess):
    # All that can be logged is: no token may be among it.
    with gateway(sess, "-vv") as here:
        await sessions_are_told_apart(here)
        await a_token_in_the_address(here)
        await fewer_rights(here)
        await another_connection_is_nobodys(here)


if len(sys.argv) != 2:
    raise SystemExit(__doc__)
try:
    asyncio.run(main(sys.argv[1]))
except* AssertionError as group:
    # The SDK's task groups wrap what is raised inside of them, several times over.
    error = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    raise SystemExit(f"FAIL {error}") from None
