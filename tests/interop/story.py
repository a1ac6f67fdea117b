"""The story that every client goes through, told once, and what must be true at each of its steps.

A committed edit loses its answer; a new connection sends it again and must be told that it was done, once. Steps build
on one another, so after a failed step the rest is reported as not reached.
"""

import json

from processes import Failed

TOOL = "set_interval"
REQUEST_IDS = "dev.counterfoil/request-ids"
REQUEST_ID = "dev.counterfoil/request-id"
CALLER = "dev.counterfoil/caller"

EDIT = {"id": 1, "expected_version": 1, "interval_minutes": 30, "request_id": "edit-42"}
BY_META = {"id": 2, "expected_version": 1, "interval_minutes": 20}
BY_HEADER = {"id": 2, "expected_version": 2, "interval_minutes": 25}


class Story:
    """One client's walk through the steps. `plain` and `lossy` are endpoints; `lost` tells what the lossy one kept."""

    def __init__(self, client, protocol, plain, lossy, lost):
        self.client = client
        self.protocol = protocol
        self.plain = plain
        self.lossy = lossy
        self.lost = lost

    def steps(self):
        """The names and functions of the steps, in order."""
        names = ["connect", "list", "read", "lose", "replay", "once", "status", "reused", "conflict", "no_id", "no_row"]
        names += ["meta", "header"] if "headers" in self.plain else ["meta"]
        return [(name, getattr(self, name)) for name in names]

    # Each step, in the order of `steps`.

    def connect(self):
        self.caller = self.open(self.plain)

    def list(self):
        self.tools = {tool["name"]: tool for tool in self.client.get(op="list")["tools"]}
        need(set(self.tools) >= {TOOL, "get_automation", "operation_status", "void_operation"}, "tools", [*self.tools])
        check_write_tool(self.tools[TOOL])
        hint = self.tools["get_automation"].get("annotations", {}).get("readOnlyHint")
        need(hint is True, "get_automation readOnlyHint", hint)

    def read(self):
        self.expect_row(1, version=1, interval=15)

    def lose(self):
        """The answer of a committed edit never arrives, and the SDK must not make one up."""
        self.client.ask(op="close")
        self.open(self.lossy)
        kind, value = self.client.ask(op="call", tool=TOOL, arguments=EDIT)
        self.client.ask(op="close")
        need(kind == "error", "the call whose answer was lost returned", value)
        lost = self.lost()
        need(len(lost) == 1, "answers lost", lost)
        reply = lost[0].get("result", {}).get("structuredContent", {})
        need(reply.get("replayed") is False, "the lost answer", lost[0])
        self.first = reply

    def replay(self):
        caller = self.open(self.plain)
        need(caller == self.caller, "the caller's hash on a new connection", caller)
        self.client.get(op="list")  # the SDK now holds the output schema that it judges answers by
        reply, text = self.reply(EDIT)
        need(reply["replayed"] is True, "replayed", reply)
        need(reply["result"] == self.first["result"], "the replayed result", reply)
        need(reply["result"]["version"] == 2, "the result's version", reply)
        need(reply["request_id"] == "edit-42", "request_id", reply)
        need(reply["committed_at"] == self.first["committed_at"], "committed_at", reply)
        need(reply["epoch"] == self.first["epoch"], "epoch", reply)
        need(reply["committed_at"][:10] in text, "the text does not say when it was committed:", text)

    def once(self):
        self.expect_row(1, version=2, interval=30)

    def status(self):
        answer = self.call("operation_status", {"tool": TOOL, "operation": "edit-42"})
        state = answer.get("structuredContent", {})
        need(not answer.get("isError"), "operation_status", answer)
        need(state.get("state") == "committed", "state", state)
        need(state.get("result") == self.first["result"], "result", state)

    def reused(self):
        self.refusal({**EDIT, "interval_minutes": 45}, "request_id_reused", retry="new_id", operation=None)

    def conflict(self):
        fresh = {**EDIT, "request_id": "edit-43", "interval_minutes": 60}
        error = self.refusal(fresh, "version_conflict", retry="new_id", operation="not_committed_so_far")
        need(error.get("current", {}).get("version") == 2, "current", error)

    def no_id(self):
        self.refusal(BY_META, "request_id_required", retry="corrected", operation="unknown")

    def no_row(self):
        """Row 20 exists, in a workspace that is not the caller's."""
        elsewhere = {**EDIT, "id": 20, "request_id": "edit-20"}
        self.refusal(elsewhere, "resource_unavailable", retry="no", operation="unknown")

    def meta(self):
        """The id by `_meta` alone, sent twice; then two sources that disagree."""
        for replayed in (False, True):
            reply, _ = self.reply(BY_META, meta={REQUEST_ID: "edit-meta"})
            need(reply["replayed"] is replayed and reply["request_id"] == "edit-meta", "by _meta", reply)
        both = {**BY_META, "request_id": "edit-other"}
        self.refusal(both, "invalid_request_id", "corrected", "unknown", meta={REQUEST_ID: "edit-meta"})

    def header(self):
        """The id by the HTTP header of the endpoint alone, as a gateway would add it."""
        self.client.ask(op="close")
        self.open({**self.plain, "headers": {**self.plain["headers"], "Idempotency-Key": '"edit-header"'}})
        for replayed in (False, True):
            reply, _ = self.reply(BY_HEADER)
            need(reply["replayed"] is replayed and reply["request_id"] == "edit-header", "by header", reply)
        self.expect_row(2, version=3, interval=25)

    # What the steps are made of.

    def open(self, endpoint):
        """Connect, see to the revision, and give the caller's hash where this SDK shows it (else None)."""
        server = self.client.get(op="open", endpoint=endpoint)
        need(server["protocol"] == self.protocol, "negotiated revision", server["protocol"])
        if server["greeting"] is None:
            return None
        caller = server["greeting"].get("_meta", {}).get(CALLER)
        need(isinstance(caller, str) and caller, CALLER, server["greeting"])
        return caller

    def call(self, tool, arguments, meta=None):
        return self.client.get(op="call", tool=tool, arguments=arguments, meta=meta)

    def reply(self, arguments, meta=None):
        answer = self.call(TOOL, arguments, meta)
        need(not answer.get("isError"), "refused", answer)
        return answer["structuredContent"], answer["content"][0]["text"]

    def refusal(self, arguments, code, retry, operation, meta=None):
        """The refusal's body, which an SDK that validates answers has just let through."""
        answer = self.call(TOOL, arguments, meta)
        need(answer.get("isError") is True, "isError", answer)
        error = answer["structuredContent"]["error"]
        told = (error.get("code"), error.get("retry"), error.get("operation"))
        need(told == (code, retry, operation), f"expected {code}, {retry}, {operation}; got", error)
        need(code in answer["content"][0]["text"], "the text does not name the code:", answer["content"])
        return error

    def expect_row(self, id, version, interval):
        answer = self.call("get_automation", {"id": id})
        row = answer.get("structuredContent", {}).get("result")
        need(row == {"id": id, "version": version, "interval_minutes": interval}, "get_automation", answer)


def check_write_tool(tool):
    schema = tool["inputSchema"]
    need("request_id" in schema["properties"], "request_id is not declared:", schema)
    need("request_id" not in schema.get("required", []), "request_id is not optional:", schema)
    need(tool.get("outputSchema", {}).get("type") == "object", "outputSchema", tool.get("outputSchema"))
    need(tool.get("annotations", {}).get("readOnlyHint") is False, "readOnlyHint", tool.get("annotations"))
    need(tool.get("_meta", {}).get(REQUEST_IDS) is True, REQUEST_IDS, tool.get("_meta"))
    teaching = tool["description"] + " " + schema["properties"]["request_id"].get("description", "")
    words = teaching.lower()
    need("retry" in words and ("reuse" in words or "same" in words), "the id is not taught:", teaching)


def need(holds, *why):
    if not holds:
        raise Failed(" ".join(word if isinstance(word, str) else json.dumps(word) for word in why))
