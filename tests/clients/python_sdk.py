"""Drives `sess mcp` with the Python MCP SDK, as a real client would.

usage: python_sdk.py path/to/sess

Every tool is listed and called, over each revision that the SDK can speak.
The server gets a scratch home and a session of its own per revision.
"""

import asyncio
import os
import sys
import tempfile

import mcp_types as types
from mcp import Client, ClientSession, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

PLAN = "# Plan\n\n1. measure\n2. cut — “twice”\n"

# Read-only, destructive, idempotent, open world.
WRITES = (False, False, True, False)
HINTS = {
    "write_session_plan": WRITES,
    "read_session_plan": None,
    "exit_plan_mode": WRITES,
    "list_sessions": None,
    "read_session": None,
}


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def text_of(result):
    check(len(result.content) == 1, f"one block of text, not {result.content}")
    return result.content[0].text


async def check_tools(call, tools):
    tools = {tool.name: tool for tool in tools}
    check(set(HINTS) <= set(tools), f"tools are missing: {set(HINTS) - set(tools)}")
    for name, hints in HINTS.items():
        tool = tools[name]
        check(tool.title and tool.description, f"{name} has no title or description")
        check(tool.input_schema["type"] == "object", f"input schema of {name}")
        check(tool.output_schema["type"] == "object", f"output schema of {name}")
        check(tool.annotations.title == tool.title, f"annotated title of {name}")
        check(tool.meta["anthropic/alwaysLoad"] is True, f"_meta of {name}")
        found = tool.annotations
        if hints is None:
            check(found.read_only_hint is True, f"{name} is read-only")
        else:
            found = (found.read_only_hint, found.destructive_hint, found.idempotent_hint, found.open_world_hint)
            check(found == hints, f"annotations of {name}: {found}")

    async def fails(name, arguments, sentence):
        result = await call(name, arguments)
        check(result.is_error is True, f"{name} {arguments} should fail")
        check(sentence in text_of(result), f"{name} {arguments}: {text_of(result)}")

    async def works(name, arguments):
        result = await call(name, arguments)
        check(not result.is_error, f"{name} {arguments}: {result.content}")
        check(isinstance(result.structured_content, dict), f"{name} has no structured content")
        return result

    await fails("read_session_plan", {}, "no plan written yet for this session; call write_session_plan first")
    await fails("exit_plan_mode", {}, "call write_session_plan before exit_plan_mode")
    await fails("write_session_plan", {"content": " \n"}, "content must not be empty")
    await fails("write_session_plan", {}, "content must not be empty")

    written = await works("write_session_plan", {"content": PLAN})
    path = written.structured_content["path"]
    check(text_of(written) == f"Plan saved to {path}", text_of(written))
    with open(path, encoding="utf-8", newline="") as file:
        check(file.read() == PLAN, "the plan file holds something else")
    read = await works("read_session_plan", None)
    check(text_of(read) == PLAN, "the plan came back changed")
    # Claude Code and Codex show the model the structured part in place of the text.
    check(PLAN in read.structured_content.values(), "the structured part lacks the plan")
    check(text_of(await works("exit_plan_mode", {})) == "Plan ready for review.", "exit_plan_mode")
    again = await works("exit_plan_mode", {})
    check(again.structured_content["state"] == "ready", f"{again.structured_content}")

    listed = await works("list_sessions", {"limit": 5})
    check(isinstance(listed.structured_content["sessions"], list), "list_sessions")
    await fails("read_session", {"session_id": ""}, "session_id must not be empty")
    await fails("read_session", {"session_id": "no-such-session"}, 'session "no-such-session" not found')

    try:
        await call("no_such_tool", {})
        check(False, "an unknown tool should be an error of the protocol")
    except MCPError as error:
        check(error.code == -32602, f"unknown tool: {error.code}")


async def check_views(client):
    resources = {str(resource.uri) for resource in (await client.list_resources()).resources}
    check({"plan://current", "session://current"} <= resources, f"resources: {resources}")
    plan = (await client.read_resource("plan://current")).contents[0]
    check(plan.text == PLAN and plan.mime_type == "text/markdown", f"plan://current: {plan}")
    templates = (await client.list_resource_templates()).resource_templates
    check([template.uri_template for template in templates] == ["session://{id}"], f"{templates}")
    try:
        await client.read_resource("nope://x")
        check(False, "an unknown resource should be an error")
    except MCPError:
        pass
    prompt = await client.get_prompt("review-plan")
    check(PLAN in prompt.messages[0].content.text, f"review-plan: {prompt}")


def server(sess, home):
    env = {"PATH": os.environ["PATH"], "HOME": home, "SESS_HOME": home}
    return StdioServerParameters(command=sess, args=["mcp"], env=env)


async def with_client(sess, mode, revision):
    with tempfile.TemporaryDirectory() as home:
        async with Client(server(sess, home), mode=mode) as client:
            check(client.protocol_version == revision, f"{mode}: spoke {client.protocol_version}")
            if mode != revision:
                # A client that is told the revision asks for nothing beforehand.
                check(client.server_info.name == "intersession", f"{client.server_info}")
                check(client.instructions, "no instructions")
            await check_tools(client.call_tool, (await client.list_tools()).tools)
            await check_views(client)
    print(f"PASS python sdk, mode {mode}, revision {revision}")


async def with_session(sess, revision):
    """The SDK's own handshake names its newest revision; here an older one is asked for."""
    with tempfile.TemporaryDirectory() as home:
        async with stdio_client(server(sess, home)) as (read, write):
            async with ClientSession(read, write) as session:
                params = types.InitializeRequestParams(
                    protocol_version=revision,
                    capabilities=types.ClientCapabilities(),
                    client_info=types.Implementation(name="python-sdk-test", version="1"),
                )
                request = types.InitializeRequest(params=params)
                agreed = await session.send_request(request, types.InitializeResult)
                check(agreed.protocol_version == revision, f"agreed on {agreed.protocol_version}")
                await session.send_notification(types.InitializedNotification())
                # This session object skipped its own handshake, so the SDK's typed
                # helpers are passed by as well.
                listed = await session.send_request(types.ListToolsRequest(), types.ListToolsResult)

                async def call(name, arguments):
                    params = types.CallToolRequestParams(name=name, arguments=arguments)
                    return await session.send_request(types.CallToolRequest(params=params), types.CallToolResult)

                await check_tools(call, listed.tools)
    print(f"PASS python sdk, handshake, revision {revision}")


async def main():
    sess = os.path.abspath(sys.argv[1])
    await with_client(sess, "auto", "2026-07-28")
    await with_client(sess, "2026-07-28", "2026-07-28")
    await with_client(sess, "legacy", "2025-11-25")
    await with_session(sess, "2025-11-25")
    await with_session(sess, "2025-06-18")


if len(sys.argv) != 2:
    raise SystemExit(__doc__)
try:
    asyncio.run(main())
except* AssertionError as group:
    # The SDK's task groups wrap what is raised inside of them, several times over.
    error = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    raise SystemExit(f"FAIL {error}") from None
