"""A model that follows a script, for hosts that nobody here wrote.

It speaks what they speak, streaming: Anthropic's Messages, and OpenAI's Chat Completions and Responses. The script
is a list of calls, (tool, arguments), or a function that has the person's last words and returns that list. With each
request it looks at how many results stand behind those words, and makes the next call; after the last one it says that
it is done, or what `reply` makes of the words. A request that offers no tool of the script (for a title, a summary)
gets a word and is not counted.
"""

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DONE = "All done."


def fresh(prefix):
    return prefix + uuid.uuid4().hex


def plain(content):
    """The text of a result, in whichever form an API has it."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(plain(part) for part in content)
    if isinstance(content, dict):
        return plain(content.get("text", ""))
    return ""


class Model:
    def __init__(self, script, reply=lambda said: DONE):
        self.script = script if callable(script) else lambda said: script
        self.reply = reply
        self.results = []
        self.heard = []
        self.lock = threading.Lock()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def do_GET(self):
                self.answer({"object": "list", "data": [{"id": "script", "object": "model"}], "models": []})

            def do_POST(self):
                length = int(self.headers.get("content-length") or 0)
                request = json.loads(self.rfile.read(length) or b"{}")
                path = self.path.split("?")[0]
                if path.endswith("/messages"):
                    self.events(model.messages(request))
                elif path.endswith("/chat/completions"):
                    self.events(model.chat(request))
                elif path.endswith("/responses"):
                    self.events(model.responses(request))
                else:
                    self.answer({"input_tokens": 1})

            def answer(self, body):
                body = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def events(self, events):
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                for event in events:
                    named = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
                    data = event if isinstance(event, str) else json.dumps(event)
                    self.wfile.write(f"{named}data: {data}\n\n".encode())

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()

    def next(self, request, offered, said, results):
        """The next call, as the offered name and its arguments; None when there is nothing left to call."""
        with self.lock:
            self.heard.append(json.dumps(request))
            if len(results) > len(self.results):
                self.results = results
        script = self.script(said)
        if len(results) >= len(script):
            return None
        tool, arguments = script[len(results)]
        named = [name for name in offered if name == tool or name.endswith("_" + tool) or name.endswith("\0" + tool)]
        return (named[0], arguments) if named else None

    def messages(self, request):
        said, results = "", []
        for message in request.get("messages", []):
            content = message["content"]
            blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
            answers = [plain(block.get("content")) for block in blocks if block.get("type") == "tool_result"]
            if message["role"] == "user":
                results = results + answers if answers else []
                said = said if answers else plain(content)
        call = self.next(request, [tool.get("name", "") for tool in request.get("tools") or []], said, results)
        usage = {"input_tokens": 1, "output_tokens": 1}
        head = {"id": fresh("msg_"), "type": "message", "role": "assistant", "model": request.get("model", "script")}
        yield {"type": "message_start", "message": head | {"content": [], "stop_reason": None, "usage": usage}}
        if call:
            block = {"type": "tool_use", "id": fresh("toolu_"), "name": call[0], "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
        else:
            block = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": self.reply(said)}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        stop = "tool_use" if call else "end_turn"
        yield {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}
        yield {"type": "message_stop"}

    def chat(self, request):
        said, results = "", []
        for message in request.get("messages", []):
            if message["role"] == "user":
                said, results = plain(message["content"]), []
            elif message["role"] == "tool":
                results.append(plain(message["content"]))
        offered = [tool["function"]["name"] for tool in request.get("tools") or []]
        call = self.next(request, offered, said, results)
        if call:
            function = {"name": call[0], "arguments": json.dumps(call[1])}
            delta = {"tool_calls": [{"index": 0, "id": fresh("call_"), "type": "function", "function": function}]}
        else:
            delta = {"content": self.reply(said)}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        head = {"id": fresh("chat_"), "object": "chat.completion.chunk", "created": 1, "model": "script"}
        choice = {"index": 0, "delta": {"role": "assistant"} | delta, "finish_reason": None}
        yield head | {"choices": [choice]}
        choice = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if call else "stop"}
        yield head | {"choices": [choice], "usage": usage}
        yield "[DONE]"

    def responses(self, request):
        said, results, offered = "", [], []
        for tool in request.get("tools") or []:
            # A server's tools may come under a name of their own.
            for inner in tool.get("tools", []):
                offered.append(f"{tool.get('name')}\0{inner.get('name')}")
            offered.append(tool.get("name") or tool.get("type"))
        items = request.get("input")
        for item in items if isinstance(items, list) else []:
            if item.get("type", "message") == "message" and item.get("role") == "user":
                said, results = plain(item.get("content")), []
            elif item.get("type") == "function_call_output":
                results.append(plain(item.get("output")))
        call = self.next(request, offered, said, results)
        if call:
            space, _, name = call[0].rpartition("\0")
            item = {"type": "function_call", "id": fresh("fc_"), "call_id": fresh("call_"), "name": name}
            item |= {"arguments": json.dumps(call[1]), "status": "completed"}
            if space:
                item["namespace"] = space
        else:
            text = {"type": "output_text", "text": self.reply(said), "annotations": []}
            item = {"type": "message", "id": fresh("msg_"), "role": "assistant", "status": "completed", "content": [text]}
        response = {"id": fresh("resp_"), "object": "response", "model": "script", "output": []}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        yield {"type": "response.created", "response": response | {"status": "in_progress"}}
        yield {"type": "response.output_item.added", "output_index": 0, "item": item}
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        done = response | {"status": "completed", "output": [item], "usage": usage}
        yield {"type": "response.completed", "response": done}
